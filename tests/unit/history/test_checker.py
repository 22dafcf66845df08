"""The checker accepts valid runs, rejects each violation by its rule, and counts the runs.

What an answer says of a call, and what is read of the metadata log.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.checker import (
    RULES,
    Violation,
    figures_of,
    figures_text,
    note_figures,
    violations,
)
from tests.testkit.history.events import (
    Answer,
    Call,
    End,
    LogRecord,
    Write,
    answer_of,
    read_dump,
)
from tests.testkit.history.evidence import AuditedEntity, AuditEvent, Evidence
from tests.unit.history.valid_histories import (
    AUDITED,
    CALLS,
    KEY,
    RECORDS,
    at,
    concluded,
    evidence,
    intent,
    record,
    recovered,
    user,
    values_of,
    write,
)


def without(number: int) -> tuple[LogRecord, ...]:
    return tuple(item for item in RECORDS if item.write.value != number)


def with_record(seconds: float, of: Write) -> tuple[LogRecord, ...]:
    return tuple(sorted([*RECORDS, record(seconds, of)], key=lambda item: item.at))


def audit(
    alteration_id: str, change: Callable[[AuditedEntity], AuditedEntity]
) -> tuple[AuditedEntity, ...]:
    index = next(i for i, entity in enumerate(AUDITED) if entity.alteration_id == alteration_id)
    return (*AUDITED[:index], change(AUDITED[index]), *AUDITED[index + 1 :])


def saying(alteration_id: str, outcome: str) -> tuple[AuditedEntity, ...]:
    return audit(
        alteration_id,
        lambda item: replace(
            item, events=(*item.events[:-1], replace(item.events[-1], outcome=outcome))
        ),
    )


def calls(number: int, **members: object) -> tuple[Call, ...]:
    return tuple(
        replace(call, answer=replace(call.answer, **members))  # type: ignore[type-var, arg-type]
        if call.number == number
        else call
        for call in CALLS
    )


def with_audit(**members: object) -> Evidence:
    valid = evidence()
    return replace(valid, audit=replace(valid.audit, **members))  # type: ignore[arg-type]


def unfinished(audited: AuditedEntity) -> AuditedEntity:
    return replace(audited, events=audited.events[:-1])


def committed_later(audited: AuditedEntity) -> AuditedEntity:
    return replace(audited, committed_at=audited.committed_at + timedelta(seconds=1))


def twice(audited: AuditedEntity) -> AuditedEntity:
    return replace(audited, events=(*audited.events, *audited.events))


def overlapping(audited: AuditedEntity) -> AuditedEntity:
    """Conclude it only when the next one of the same entity has begun."""
    return replace(audited, events=(replace(audited.events[-1], at=at(1.5)),))


def observed_applied(audited: AuditedEntity) -> AuditedEntity:
    return recovered(replace(audited, events=()), 96, "not_applied", observed="applied")


def late_drift(audited: AuditedEntity) -> AuditedEntity:
    return replace(audited, events=(*audited.events, AuditEvent("drift", at(190))))


def sent_anew(began: float) -> tuple[AuditedEntity, ...]:
    """Return the audit log with a repeat of ``a10``, of which nothing was sent."""
    again = concluded(intent("b10", began, write("dan", 12)), 1, "applied")
    return (*saying("a10", "not_sent"), again)


SWAPPED = (RECORDS[1], RECORDS[0], *RECORDS[2:])


TWO_INTENTS = (*AUDITED, concluded(intent("b10", 209, write("dan", 12)), 0.1, "not_applied"))

VIOLATIONS: dict[str, dict[str, Evidence]] = {
    "every_record_has_an_intent": {
        "a record that nobody asked for": evidence(records=with_record(100, write("gus", 99))),
        "an intent that was committed after the record": evidence(
            audited=audit("a1", committed_later)
        ),
    },
    "every_record_has_an_intent answers_and_audit_agree": {
        "a record whose intent is not in the log": evidence(
            audited=tuple(entity for entity in AUDITED if entity.alteration_id != "a16")
        ),
    },
    "conclusions_are_true": {
        "recovery says applied, nothing was": evidence(audited=saying("a5", "applied")),
        "recovery says not applied, it was": evidence(audited=saying("a4", "not_applied")),
        "applied long after the verdict": evidence(records=with_record(190, write("cat", 7))),
        "applied long after the verdict, recorded as drift, while that must not happen": evidence(
            audited=audit("a5", late_drift), records=with_record(190, write("cat", 7))
        ),
        "one of two keys of an entity": evidence(
            audited=audit(
                "a5",
                lambda item: replace(
                    recovered(item, 96, "observed_other", observed="observed_other"),
                    writes=(write("cat", 7), Write(user("cat"), "consumer_byte_rate", 7)),
                ),
            ),
            records=with_record(20, write("cat", 7)),
        ),
        "an outcome that is none": evidence(audited=saying("a5", "validated")),
    },
    "conclusions_are_true answers_are_true": {
        "an applied alteration that is gone from the log of the cluster": evidence(
            records=without(16)
        ),
        "refused, and applied all the same": evidence(records=with_record(2.15, write("cat", 5))),
    },
    "conclusions_are_true answers_are_true what_may_be_repeated_was_never_applied "
    "expectations_held": {
        "not sent, and applied all the same": evidence(records=with_record(201.2, write("ann", 9))),
    },
    "everything_is_concluded_once": {
        "an intent without an end": evidence(audited=audit("a5", unfinished)),
        "two conclusions": evidence(audited=audit("a16", twice)),
        "a lock that is still taken": with_audit(open_locks=[("a5", 0)]),
    },
    "order_is_the_clusters": {
        "another order than the cluster's": evidence(records=SWAPPED),
    },
    "order_is_the_clusters each_request_is_one_change expectations_held": {
        "an old change that comes back over a new one": evidence(
            records=with_record(3, write("ann", 1))
        ),
    },
    "locks_do_not_overlap": {
        "two alterations of one entity at once": evidence(audited=audit("a1", overlapping)),
        "an alteration that begins before recovery has ended another": evidence(
            audited=(
                *AUDITED,
                concluded(intent("b4", 50, write("bob", 40)), 0.1, "not_applied"),
            )
        ),
    },
    "provisional_verdicts_were_true": {
        "observed as applied, concluded as not applied": evidence(
            audited=audit("a5", observed_applied)
        ),
        "observed as not applied when it was": evidence(
            records=(*without(6)[:4], record(3.5, write("bob", 6)), *without(6)[4:]),
        ),
    },
    "the_end_is_the_last_record": {
        "a broker that shows something else at the end": replace(
            evidence(), described={**values_of(RECORDS), user("ann"): {KEY: 4.0}}
        ),
        "a last audited state that the cluster does not have": with_audit(
            states={**values_of(RECORDS), user("ann"): {KEY: 4.0}}
        ),
    },
    "answers_are_true": {
        "200 for something unknown": evidence(calls=calls(4, status=200)),
        "an answer that came before the record": evidence(
            records=(*without(16), record(250, write("fay", 16)))
        ),
    },
    "what_may_be_repeated_was_never_applied": {
        "safe to repeat, and applied": evidence(calls=calls(4, retry="safe")),
        "nothing sent, and applied": evidence(calls=calls(4, sent_to_cluster="no")),
    },
    "answers_and_audit_agree": {
        "an answer about another's alteration": evidence(calls=calls(4, alteration_id="a16")),
        "an alteration that is not in the log, though its commit was never in doubt": evidence(
            calls=calls(7, alteration_id="a77")
        ),
        "an answer that the audit log does not confirm": evidence(
            audited=saying("a3", "observed_other")
        ),
    },
    "documents_tell_the_conclusion": {
        "an alteration that nobody can look up": evidence(documents={"a3": {}}),
        "a document that is behind the audit log": evidence(
            documents={"a4": {user("bob"): "unknown"}}
        ),
    },
    "each_request_is_one_change": {
        "a key that made two intents": evidence(audited=TWO_INTENTS),
    },
    "conclusions_are_true answers_and_audit_agree": {
        "a repeat of what was not sent, and was": evidence(audited=sent_anew(began=240)),
    },
    "every_record_has_an_intent order_is_the_clusters each_request_is_one_change": {
        "a key whose request was applied twice": evidence(
            records=(*RECORDS, record(231, write("dan", None)), record(232, write("dan", 12))),
        ),
    },
    "every_record_has_an_intent expectations_held": {
        "a lost update": evidence(records=with_record(202.1, write("ann", 98))),
    },
    "refused_expectations_did_not_hold": {
        "an expectation that held and was refused": evidence(
            calls=tuple(
                replace(call, expected=(write("ann", 10),)) if call.number == 9 else call
                for call in CALLS
            )
        ),
    },
}
"""By the rules that they break."""


def test_a_valid_run_is_accepted():
    assert violations(evidence()) == []


def test_an_empty_run_is_accepted():
    assert violations(evidence((), (), ())) == []


def test_a_late_apply_that_is_recorded_as_drift_is_accepted_where_lateness_has_no_bound():
    run = evidence(
        audited=audit("a5", late_drift), records=with_record(190, write("cat", 7)), bounded=False
    )
    assert violations(run) == []


def test_a_frozen_owner_may_say_not_sent_when_recovery_has_found_not_applied():
    found = audit(
        "a7",
        lambda item: recovered(
            replace(item, events=()), 0.5, "not_applied", observed="not_applied"
        ),
    )
    assert violations(evidence(audited=found)) == []


def test_a_request_of_which_nothing_was_sent_may_be_repeated_with_its_key():
    valid = (
        record(240.15, write("dan", 12)) if item.write == write("dan", 12) else item
        for item in RECORDS
    )
    answers = (replace(call, answer=None) if call.idempotency_key else call for call in CALLS)
    records = tuple(sorted(valid, key=lambda item: item.at))
    run = evidence(tuple(answers), sent_anew(began=240), records)
    assert violations(run) == []


def test_a_change_that_comes_back_is_accepted_as_drift_where_lateness_has_no_bound():
    run = evidence(
        audited=audit("a1", late_drift), records=with_record(240, write("ann", 1)), bounded=False
    )
    assert violations(run) == []


def test_an_invalid_history_is_rejected(subtests: pytest.Subtests):
    for broken, runs in VIOLATIONS.items():
        for violation, run in runs.items():
            with subtests.test(violation=violation):
                assert {item.rule for item in violations(run)} == set(broken.split())


def test_every_rule_is_violated_by_a_case():
    assert set(" ".join(VIOLATIONS).split()) == {rule.__name__ for rule in RULES}


def test_a_valid_run_is_counted_and_nothing_is_wrong_in_it():
    valid = evidence()
    figures = figures_of(valid, violations(valid))
    assert figures == {
        "calls": len(CALLS),
        "without a definite answer": 4,
        "intents": len(AUDITED),
        "concluded by recovery": 2,
        "records in the metadata log": len(RECORDS),
        "not concluded": 0,
        "violations": 0,
    }


def test_what_is_not_concluded_is_counted_apart():
    found = [
        Violation("everything_is_concluded_once", "lock 1 is still taken"),
        Violation("conclusions_are_true", "not in the metadata log"),
    ]
    figures = figures_of(evidence(), found)
    assert (figures["not concluded"], figures["violations"]) == (1, 2)


def test_the_figures_of_all_tests_are_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv("FAULTS_FIGURES", str(path))
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/a.py::test_something[a kill] (call)")
    note_figures({"faults": 3})
    note_figures({"faults": 4, "calls": 5})
    assert figures_text(path).splitlines() == [
        "something[a kill]",
        "  faults: 3",
        "something[a kill]",
        "  faults: 4",
        "  calls: 5",
    ]


def test_without_a_file_for_them_figures_are_not_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("FAULTS_FIGURES", raising=False)
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    monkeypatch.chdir(tmp_path)
    note_figures({"faults": 3})
    assert list(tmp_path.iterdir()) == []


PAIR = ClientQuotaEntity.of({"user": 'a\u0001 "é,', "client-id": None})

DUMP = r"""
Dumping /data/__cluster_metadata-0/00000000000000000000.log
baseOffset: 18 lastOffset: 20 count: 3 CreateTime: 1795257920860 size: 229 isvalid: true
| offset: 18 CreateTime: 1795257920860 keySize: -1 payload: {"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"client-id","entityName":null},{"entityType":"user","entityName":"a\u0001 \"é,"}],"key":"producer_byte_rate","value":1.23456789E8,"remove":false}}
| offset: 19 CreateTime: 1795257920860 keySize: -1 payload: {"type":"NO_OP_RECORD","version":0,"data":{}}
| offset: 20 CreateTime: 1795257920923 keySize: -1 payload: {"type":"CONFIG_RECORD","version":0,"data":{"value":"CLIENT_QUOTA_RECORD"}}
| offset: 21 CreateTime: 1795257920923 keySize: -1 payload: {"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"user","entityName":"ann"}],"key":"producer_byte_rate","value":0.0,"remove":true}}
"""  # noqa: E501 - as Kafka prints it


def test_a_call_has_the_outcomes_and_the_end_of_its_answer():
    writes = (Write(PAIR, "producer_byte_rate", 1.0), write("ann", None))
    asked = Call(0, "client", writes, datetime.now(UTC))
    assert (asked.outcomes, asked.end) == ({}, End.UNKNOWN)
    asked.answer = Answer(207, alteration_id="a", outcomes=("applied", "refused"))
    assert asked.outcomes == {PAIR: "applied", user("ann"): "refused"}
    assert asked.end is End.OK


def test_only_what_was_surely_not_sent_has_failed(subtests: pytest.Subtests):
    for status, sent, end in [
        (200, None, End.OK),
        (207, None, End.OK),
        (503, "no", End.FAIL),
        (409, "no", End.FAIL),
        (503, "yes", End.UNKNOWN),
        (504, "maybe", End.UNKNOWN),
        (502, None, End.UNKNOWN),
    ]:
        with subtests.test(status=status, sent=sent):
            assert answer_of(status, {"sent_to_cluster": sent}, {}).end is end


def test_the_alteration_that_a_busy_entity_waits_for_is_not_this_call():
    busy = {"code": "entity-busy", "alteration_id": "another"}
    assert answer_of(409, busy, {}).alteration_id is None
    running = {"code": "idempotency-key-running", "alteration_id": "this"}
    assert answer_of(409, running, {}).alteration_id == "this"


def test_the_metadata_log_is_read_from_the_dump_of_kafkas_own_tool():
    first, second = read_dump(DUMP)
    assert first.write == Write(PAIR, "producer_byte_rate", 123456789.0)
    assert first.at == datetime(2026, 11, 21, 10, 45, 20, 860000, UTC)
    assert second.write == write("ann", None)
    assert first.latest == second.at
    assert second.latest > second.at
