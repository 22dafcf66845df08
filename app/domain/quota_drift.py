"""Where a document of desired quotas, the log and the live quotas differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from app.domain.alterations import same_value
from app.domain.entities import ClientQuotaEntity
from app.domain.quantities import value_in_words
from app.domain.right_sizes import alteration_body


class Quota(NamedTuple):
    """One key of one entity."""

    entity: ClientQuotaEntity
    key: str


class DriftKind(StrEnum):
    """What differs: the first three are about the document, the others about the log."""

    MISSING = "missing"
    UNEXPECTED = "unexpected"
    VALUE_DIFFERS = "value_differs"
    OUT_OF_BAND = "out_of_band"
    FAILED_BUT_APPLIED = "failed_but_applied"


@dataclass(frozen=True, slots=True)
class Failed:
    """The newest alteration of a key that the log says has failed, and what it would have set."""

    value: float | None
    alteration_id: str


@dataclass(frozen=True, slots=True)
class States:
    """What each source says; a value of null is a key that is not set.

    Attributes:
        desired: Of the document; null: there is none. A key that it lacks is not wanted.
        logged: By the log; it says nothing of what it lacks.
        live: As described; null: nobody described it, and what the log says counts as live.
        failed: What the log says has failed.
    """

    desired: Mapping[Quota, float | None] | None
    logged: Mapping[Quota, float | None]
    live: Mapping[Quota, float] | None
    failed: Mapping[Quota, Failed]


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference; null: not set there."""

    kind: DriftKind
    quota: Quota
    desired: float | None
    logged: float | None
    live: float | None
    reason: str
    alteration_id: str | None = None

    def body(self) -> Mapping[str, Any]:
        """Return what ``POST /quotas/alterations`` takes to have the document or the log again."""
        of_log = self.kind in {DriftKind.OUT_OF_BAND, DriftKind.FAILED_BUT_APPLIED}
        value = self.logged if of_log else self.desired
        reason = f"{self.kind}: {self.reason}"
        return alteration_body(self.quota.entity, self.quota.key, value, self.live, reason)


def drifts(states: States) -> Iterator[Drift]:
    """Yield the differences in order of entity and key; values compare as a broker does."""
    live: Mapping[Quota, float | None] = states.logged if states.live is None else states.live
    quotas = {*(states.desired or ()), *states.logged, *live}
    for quota in sorted(quotas, key=lambda each: (each.entity.sort_key(), each.key)):
        holds = live.get(quota)
        if states.desired is not None:
            yield from _from_document(quota, states, holds)
        if states.live is not None and quota in states.logged:
            yield from _from_log(quota, states, holds)


def _from_document(quota: Quota, states: States, live: float | None) -> Iterator[Drift]:
    desired = (states.desired or {}).get(quota)
    if same_value(desired, live):
        return
    logged = states.logged.get(quota)
    if live is None:
        kind, reason = (
            DriftKind.MISSING,
            f"The document has {_words(quota, desired)}, nothing is set.",
        )
    elif desired is None:
        kind, reason = DriftKind.UNEXPECTED, f"{_words(quota, live)} is set, not in the document."
    else:
        kind = DriftKind.VALUE_DIFFERS
        reason = f"The document has {_words(quota, desired)}, {_words(quota, live)} is set."
    yield Drift(kind, quota, desired, logged, live, reason)


def _from_log(quota: Quota, states: States, live: float | None) -> Iterator[Drift]:
    logged, failed = states.logged[quota], states.failed.get(quota)
    if same_value(logged, live):
        return
    desired = (states.desired or {}).get(quota)
    if failed is not None and same_value(failed.value, live):
        reason = f"The log says that setting {_words(quota, live)} failed, but it is set."
        if live is None:
            reason = "The log says that removing it failed, but it is gone."
        kind, by = DriftKind.FAILED_BUT_APPLIED, failed.alteration_id
        yield Drift(kind, quota, desired, logged, live, reason, by)
        return
    reason = f"The log says {_words(quota, logged)}, {_words(quota, live)} is set."
    yield Drift(DriftKind.OUT_OF_BAND, quota, desired, logged, live, reason)


def _words(quota: Quota, value: float | None) -> str:
    return "nothing" if value is None else value_in_words(quota.key, value)
