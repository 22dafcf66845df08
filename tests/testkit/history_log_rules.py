"""What the audit log must not say in the face of the metadata log."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.testkit.history_audit import AuditedEntity
from tests.testkit.history_evidence import Evidence

NEVER_APPLIED: Final = frozenset({"refused", "not_applied", "not_sent"})
CLAIMS_NOTHING: Final = frozenset({"superseded", "observed_other", None})


def every_record_has_an_intent(evidence: Evidence) -> Iterator[str]:
    """Nothing is applied of which no intent was committed before."""
    for record in evidence.oracle.records:
        intents = evidence.audited_of.get(record.write, [])
        if record.write in evidence.outside:
            continue
        if not intents:
            yield f"{record} has no intent"
        elif intents[0].committed_at > record.latest:
            yield f"{record} came before its intent was committed: {intents[0]}"


def conclusions_are_true(evidence: Evidence) -> Iterator[str]:
    """Applied if and only if it is in the log; what was never applied is never in it."""
    for one in evidence.audit.entities:
        found = [bool(evidence.recorded.get((one.alteration_id, write))) for write in one.writes]
        if any(found) and not all(found):
            yield f"half applied: {one}"
        if one.outcome == "applied" and not all(found):
            yield f"not in the metadata log: {one}"
        elif one.outcome in NEVER_APPLIED and any(found) and not _excused(evidence, one):
            yield f"in the metadata log all the same: {one}"
        elif one.outcome not in {"applied", *NEVER_APPLIED, *CLAIMS_NOTHING}:
            yield f"no outcome of an alteration: {one}"


def _excused(evidence: Evidence, one: AuditedEntity) -> bool:
    """What is applied later than anything can be foreseen is drift, linked to its alteration."""
    records = [record for write in one.writes for record in evidence.records_of.get(write, [])]
    too_late = min(record.at for record in records) > one.conclusions[0].at
    return too_late and one.applied_late and not evidence.bounded


def everything_is_concluded_once(evidence: Evidence) -> Iterator[str]:
    """No intent is open, none has two conclusions, no slot is left."""
    for one in evidence.audit.entities:
        if len(one.conclusions) != 1:
            yield f"{len(one.conclusions)} conclusions: {one}"
    for slot in evidence.audit.open_slots:
        yield f"slot {slot} is still taken"


def order_is_the_clusters(evidence: Evidence) -> Iterator[str]:
    """The applied conclusions of a key of an entity stand in the order of the metadata log.

    Where lateness has no bound that of the first records counts; what comes again is drift.
    """
    for place, records in evidence.records_by_key.items():
        audited = [
            write
            for one in evidence.audit.entities
            if one.outcome == "applied"
            for write in one.writes
            if write[:2] == place
        ]
        logged = [record.write for record in records if record.write in audited]
        if not evidence.bounded:
            logged = list(dict.fromkeys(logged))
        if logged != audited and set(logged) == set(audited):
            yield f"audited {audited}, in the metadata log {logged}"


def slots_do_not_overlap(evidence: Evidence) -> Iterator[str]:
    """One alteration of an entity at a time: the next begins when the last is concluded."""
    lives: dict[object, list[AuditedEntity]] = {}
    for one in evidence.audit.entities:
        lives.setdefault(one.entity, []).append(one)
    for stories in lives.values():
        for earlier, later in pairwise(stories):
            if not earlier.conclusions or earlier.conclusions[-1].at > later.at:
                yield f"{later} began before {earlier} was concluded"


def provisional_verdicts_were_true(evidence: Evidence) -> Iterator[str]:
    """Seen means applied for good; not seen means not applied before the fences were answered."""
    for one in evidence.audit.entities:
        for event in one.events:
            if event.kind != "recovery" or event.final:
                continue
            if event.outcome == "applied" and one.outcome in NEVER_APPLIED | {"observed_other"}:
                yield f"observed as applied, concluded otherwise: {one}"
            for record in evidence.records_of.get(one.writes[0], []):
                early = event.fenced_at is not None and record.latest < event.fenced_at
                if event.outcome == "not_applied" and early:
                    yield f"{record} was there, and not observed: {one}"


def the_end_is_the_last_record(evidence: Evidence) -> Iterator[str]:
    """A broker shows what the metadata log ends with, and the audit log knows it."""
    states = evidence.audit.states
    outside = {write.entity for write in evidence.outside}
    for (entity, key), records in evidence.records_by_key.items():
        last = records[-1].write.value
        shown = evidence.described.get(entity, {}).get(key)
        if shown != last:
            yield f"{entity} {key} is shown as {shown}, the metadata log ends with {last}"
        if states is None or entity in outside:
            continue
        audited = states.get(entity, {}).get(key)
        if audited != last:
            yield f"{entity} {key} is audited as {audited}, the metadata log ends with {last}"
