"""What an observation says about an alteration whose answer was lost."""

from dataclasses import dataclass

from app.domain.alterations import (
    ClientQuotaAlteration,
    Outcome,
    Values,
    apply_ops,
    same_value,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """A verdict from what was seen.

    Attributes:
        outcome: ``applied``, ``not_applied`` or ``observed_other``.
        indistinguishable: The intended values held before, so applied and not applied look alike.
    """

    outcome: Outcome
    indistinguishable: bool = False


def observe(alteration: ClientQuotaAlteration, before: Values, seen: Values) -> Observation:
    """Judge by the keys that the alteration names.

    Args:
        alteration: As it was sent.
        before: What held before, as far as it was known.
        seen: What a fresh read shows.
    """
    intended = apply_ops(before, alteration.ops)
    keys = [op.key for op in alteration.ops]
    holds = all(same_value(seen.get(key), intended.get(key)) for key in keys)
    held = all(same_value(seen.get(key), before.get(key)) for key in keys)
    if holds:
        return Observation(Outcome.APPLIED, indistinguishable=held)
    return Observation(Outcome.NOT_APPLIED if held else Outcome.OBSERVED_OTHER)
