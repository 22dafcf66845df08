"""Checks a run against the metadata log, and counts how much it was put through.

The rules say what neither callers nor the audit log must report in the face of the metadata log.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Answer, Call, End, Write
from tests.testkit.history.evidence import AuditedEntity, Evidence

NEVER_APPLIED: Final = frozenset({"refused", "not_applied", "not_sent"})
CLAIMS_NOTHING: Final = frozenset({"superseded", "observed_other", None})


def every_record_has_an_intent(evidence: Evidence) -> Iterator[str]:
    """Nothing is applied of which no intent was committed before."""
    for record in evidence.records:
        intents = evidence.audited_of.get(record.write, [])
        if not intents:
            yield f"{record} has no intent"
        elif intents[0].committed_at > record.latest:
            yield f"{record} came before its intent was committed: {intents[0]}"


def conclusions_are_true(evidence: Evidence) -> Iterator[str]:
    """Applied if and only if it is in the log; what was never applied is never in it."""
    for entity in evidence.audit.entities:
        found = [
            bool(evidence.recorded.get((entity.alteration_id, write))) for write in entity.writes
        ]
        if any(found) and not all(found):
            yield f"half applied: {entity}"
        if entity.outcome == "applied" and not all(found):
            yield f"not in the metadata log: {entity}"
        elif entity.outcome in NEVER_APPLIED and any(found) and not _excused(evidence, entity):
            yield f"in the metadata log all the same: {entity}"
        elif entity.outcome not in {"applied", *NEVER_APPLIED, *CLAIMS_NOTHING}:
            yield f"no outcome of an alteration: {entity}"


def _excused(evidence: Evidence, item: AuditedEntity) -> bool:
    """What is applied later than anything can be foreseen is drift, linked to its alteration."""
    records = [record for write in item.writes for record in evidence.records_of.get(write, [])]
    too_late = min(record.at for record in records) > item.conclusions[0].at
    return too_late and item.applied_late and not evidence.bounded


def everything_is_concluded_once(evidence: Evidence) -> Iterator[str]:
    """No intent is open, none has two conclusions, no lock is left."""
    for entity in evidence.audit.entities:
        if len(entity.conclusions) != 1:
            yield f"{len(entity.conclusions)} conclusions: {entity}"
    for lock in evidence.audit.open_locks:
        yield f"lock {lock} is still taken"


def order_is_the_clusters(evidence: Evidence) -> Iterator[str]:
    """The applied conclusions of a key of an entity stand in the order of the metadata log.

    Where lateness has no bound that of the first records counts; what comes again is drift.
    """
    for entity_key, records in evidence.records_by_key.items():
        audited = [
            write
            for entity in evidence.audit.entities
            if entity.outcome == "applied"
            for write in entity.writes
            if write[:2] == entity_key
        ]
        logged = [record.write for record in records if record.write in audited]
        if not evidence.bounded:
            logged = list(dict.fromkeys(logged))
        if logged != audited and set(logged) == set(audited):
            yield f"audited {audited}, in the metadata log {logged}"


def locks_do_not_overlap(evidence: Evidence) -> Iterator[str]:
    """One alteration of an entity at a time: the next begins when the last is concluded."""
    by_entity: dict[object, list[AuditedEntity]] = {}
    for entity in evidence.audit.entities:
        by_entity.setdefault(entity.entity, []).append(entity)
    for alterations in by_entity.values():
        for earlier, later in pairwise(alterations):
            if not earlier.conclusions or earlier.conclusions[-1].at > later.at:
                yield f"{later} began before {earlier} was concluded"


def provisional_verdicts_were_true(evidence: Evidence) -> Iterator[str]:
    """Seen means applied for good; not seen means not applied before the fences were answered."""
    for entity in evidence.audit.entities:
        for event in entity.events:
            if event.kind != "recovery" or event.final:
                continue
            if event.outcome == "applied" and entity.outcome in NEVER_APPLIED | {"observed_other"}:
                yield f"observed as applied, concluded otherwise: {entity}"
            for record in evidence.records_of.get(entity.writes[0], []):
                early = event.fenced_at is not None and record.latest < event.fenced_at
                if event.outcome == "not_applied" and early:
                    yield f"{record} was there, and not observed: {entity}"


def the_end_is_the_last_record(evidence: Evidence) -> Iterator[str]:
    """A broker shows what the metadata log ends with, and the audit log knows it."""
    for (entity, key), records in evidence.records_by_key.items():
        last = records[-1].write.value
        described = evidence.described.get(entity, {}).get(key)
        if described != last:
            yield f"{entity} {key} is described as {described}, the metadata log ends with {last}"
        audited = evidence.audit.states.get(entity, {}).get(key)
        if audited != last:
            yield f"{entity} {key} is audited as {audited}, the metadata log ends with {last}"


def answers_are_true(evidence: Evidence) -> Iterator[str]:
    """What an answer says of an entity holds, from then on and for ever."""
    for call in evidence.calls:
        if call.answer is None:
            continue
        if call.answer.status == 200 and set(call.outcomes.values()) != {"applied"}:
            yield f"200 without everything being applied: {call}"
        for entity, outcome in call.outcomes.items():
            writes = [write for write in call.writes if write.entity == entity]
            if outcome == "applied" and not all(
                _applied(evidence, call, write) for write in writes
            ):
                yield f"{entity} was answered as applied, and was not: {call}"
            if outcome in NEVER_APPLIED and any(
                _found_of(evidence, call, write) for write in writes
            ):
                yield f"{entity} was answered as not applied, and was: {call}"


def _applied(evidence: Evidence, call: Call, write: Write) -> bool:
    records = evidence.records_of.get(write, [])
    return any(call.ended is None or record.at <= call.ended for record in records)


def _found_of(evidence: Evidence, call: Call, write: Write) -> bool:
    """Tell whether the alteration that was answered left a record of the write."""
    if call.answer is None or call.answer.alteration_id is None:
        return _found(evidence, write)
    return bool(evidence.recorded.get((call.answer.alteration_id, write)))


def _found(evidence: Evidence, write: Write) -> bool:
    return bool(evidence.records_of.get(write))


def what_may_be_repeated_was_never_applied(evidence: Evidence) -> Iterator[str]:
    """``retry: safe`` and ``sent_to_cluster: no`` are promises, unless another call asked too."""
    for call in evidence.calls:
        answer = call.answer
        if answer is None or not (answer.retry == "safe" or answer.sent_to_cluster == "no"):
            continue
        for write in call.writes:
            alone = len(evidence.calls_of[write]) == 1
            if alone and _found(evidence, write):
                yield f"{write} was answered as safe to repeat, and was applied: {call}"


def answers_and_audit_agree(evidence: Evidence) -> Iterator[str]:
    """The alteration that an answer names is this call's, and its conclusions are the answer's."""
    for call in evidence.calls:
        if call.answer is None or call.answer.alteration_id is None:
            continue
        audited = {
            item.entity: item for item in evidence.audited_by_id.get(call.answer.alteration_id, [])
        }
        if not audited and _commit_was_in_doubt(call.answer):
            continue
        if not audited or not set(audited) <= set(call.entities):
            yield f"not the alteration of this call: {call}"
        for entity, outcome in call.outcomes.items():
            item = audited.get(entity)
            if item is not None and not _agree(outcome, item):
                yield f"{entity} was answered as {outcome}, the audit log has {item}: {call}"


def _commit_was_in_doubt(answer: Answer) -> bool:
    """Tell whether the answer names an intent that may never have been committed."""
    return answer.code == "audit-log-unavailable" and answer.sent_to_cluster == "no"


def _agree(outcome: str, item: AuditedEntity) -> bool:
    """Recovery may have found "not applied" before a frozen owner could say why."""
    if outcome in {"unknown", item.outcome}:
        return True
    return outcome in NEVER_APPLIED and item.outcome == "not_applied" and item.was_recovered


def each_request_is_one_change(evidence: Evidence) -> Iterator[str]:
    """However often a request is repeated with its key, it is one intent and one record.

    Unless nothing of it was sent: then a repeat begins anew.
    """
    for write, intents in evidence.audited_of.items():
        earlier = {intent.alteration_id for intent in intents[:-1]} - {intents[-1].alteration_id}
        if any(not _nothing_was_sent(evidence, item) for item in earlier):
            yield f"{write} has several intents: {intents}"
        records = evidence.records_of.get(write, [])
        late = any(intent.applied_late for intent in intents) and not evidence.bounded
        if len(records) > 1 and not late:
            yield f"{write} was applied {len(records)} times"


def _nothing_was_sent(evidence: Evidence, alteration_id: str) -> bool:
    outcomes = {item.outcome for item in evidence.audited_by_id[alteration_id]}
    return "not_sent" in outcomes and outcomes <= NEVER_APPLIED


def expectations_held(evidence: Evidence) -> Iterator[str]:
    """What was applied under an expectation replaced the expected value: no update is lost."""
    for call in evidence.calls:
        for wanted in call.expected:
            entity_key = (wanted.entity, wanted.key)
            writes = {write for write in call.writes if write[:2] == entity_key}
            before = _replaced_value(evidence, entity_key, writes)
            if before != wanted.value and any(_found(evidence, write) for write in writes):
                yield f"expected {wanted}, replaced {before}: {call}"


def _replaced_value(
    evidence: Evidence, entity_key: tuple[ClientQuotaEntity, str], writes: set[Write]
) -> float | None:
    before = None
    for record in evidence.records_by_key.get(entity_key, []):
        if record.write in writes:
            return before
        before = record.write.value
    return before


def refused_expectations_did_not_hold(evidence: Evidence) -> Iterator[str]:
    """No answer says that a value has changed when it has not: a stale read would say so."""
    for call in evidence.calls:
        if call.answer is None or call.answer.code != "expectation-failed":
            continue
        if all(_held_throughout(evidence, call, wanted) for wanted in call.expected):
            yield f"the expected values held all the time: {call}"


def _held_throughout(evidence: Evidence, call: Call, wanted: Write) -> bool:
    value, values = None, set()
    for record in evidence.records_by_key.get((wanted.entity, wanted.key), []):
        if record.at > (call.ended or call.began):
            break
        if record.latest >= call.began:
            values.add(value)
        value = record.write.value
    return values | {value} == {wanted.value}


def documents_tell_the_conclusion(evidence: Evidence) -> Iterator[str]:
    """A read of an alteration at the end has what the audit log has concluded."""
    for alteration_id, described in evidence.documents.items():
        for item in evidence.audited_by_id.get(alteration_id, []):
            if described.get(item.entity) != item.outcome:
                yield f"described as {described.get(item.entity)}: {item}"


RULES: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    every_record_has_an_intent,
    conclusions_are_true,
    everything_is_concluded_once,
    order_is_the_clusters,
    locks_do_not_overlap,
    provisional_verdicts_were_true,
    the_end_is_the_last_record,
    answers_are_true,
    what_may_be_repeated_was_never_applied,
    answers_and_audit_agree,
    each_request_is_one_change,
    expectations_held,
    refused_expectations_did_not_hold,
    documents_tell_the_conclusion,
)


class Violation(NamedTuple):
    """Which rule is broken, and by what."""

    rule: str
    detail: str


def violations(evidence: Evidence) -> list[Violation]:
    """Return everything that must not be; none for a valid run."""
    return [Violation(rule.__name__, detail) for rule in RULES for detail in rule(evidence)]


COLUMNS: Final = (
    "calls",
    "without a definite answer",
    "intents",
    "concluded by recovery",
    "records in the metadata log",
    "not concluded",
    "violations",
)
FIGURES: Final = "FAULTS_FIGURES"
"""The variable that names the file for the figures."""

_NOT_CONCLUDED: Final = "everything_is_concluded_once"


def figures_of(evidence: Evidence, violations: Iterable[Violation]) -> Mapping[str, int]:
    """Count; an intent with two conclusions is a violation and "not concluded" as well."""
    rules = [violation.rule for violation in violations]
    counted = (
        len(evidence.calls),
        sum(call.end is End.UNKNOWN for call in evidence.calls),
        len(evidence.audit.entities),
        sum(entity.was_recovered for entity in evidence.audit.entities),
        len(evidence.records),
        rules.count(_NOT_CONCLUDED),
        len(rules),
    )
    return dict(zip(COLUMNS, counted, strict=True))


def note_figures(figures: Mapping[str, Any]) -> None:
    """Add the figures of the present test to the file that ``FAULTS_FIGURES`` names, if any."""
    if FIGURES not in os.environ:
        return
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" (")[0]
    line = json.dumps({"test": test.removeprefix("test_"), **figures})
    with Path(os.environ[FIGURES]).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def figures_text(path: Path) -> str:
    """Return all that was noted: for each test a line of its own for each figure."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return "\n".join(
        line
        for row in rows
        for line in (row.pop("test"), *(f"  {name}: {value}" for name, value in row.items()))
    )
