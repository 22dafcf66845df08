"""Drift: what differs between the last audited state and what a cluster holds."""

from collections.abc import Iterable, Mapping

from app.domain.alterations import (
    ClientQuotaAlteration,
    Quotas,
    Values,
    apply_ops,
    same_value,
    same_values,
)
from app.domain.entities import ClientQuotaEntity


def differing(audited: Quotas, seen: Quotas) -> Mapping[ClientQuotaEntity, tuple[Values, Values]]:
    """Return before and after of each entity that differs; empty values stand for no entity."""
    changed = {}
    for entity in audited.keys() | seen.keys():
        before, after = audited.get(entity, {}), seen.get(entity, {})
        if not same_values(before, after):
            changed[entity] = (before, after)
    return changed


def late_apply(
    before: Values, after: Values, doubtful: Iterable[tuple[str, ClientQuotaAlteration]]
) -> str | None:
    """Return the id of the alteration that explains a change if it was applied late, or null.

    It does where everything that it intended holds now, and some of it did not before.

    Args:
        before: The last audited values.
        after: What was seen.
        doubtful: Ids and alterations of the entity, newest first.
    """
    for alteration_id, alteration in doubtful:
        intended = apply_ops(before, alteration.ops)
        keys = [op.key for op in alteration.ops]
        holds = all(same_value(after.get(key), intended.get(key)) for key in keys)
        held = all(same_value(before.get(key), intended.get(key)) for key in keys)
        if holds and not held:
            return alteration_id
    return None
