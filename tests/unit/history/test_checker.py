"""The checker accepts valid runs, rejects each violation by its rule, and counts the runs.

What an answer says of a call, and what is read of the metadata log.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.checker import (
    RULES,
    Violation,
    figures_of,
    figures_text,
    note_figures,
    violations,
)
from tests.testkit.history.events import Answer, Call, End, LogRecord, Write, answer_of, read_dump
from tests.testkit.history.evidence import AuditedEntity, AuditEvent, Evidence
from tests.unit.history.valid_runs import COURSES, KEY, OTHERS, at, evidence, record, run_of, user

ANN = user("ann")
Change = Callable[[Evidence], Evidence]


def index_of(run: Evidence) -> int:
    return next(i for i, item in enumerate(run.audit.entities) if item.entity == ANN)


def audited(change: Callable[[AuditedEntity], AuditedEntity]) -> Change:
    """Change the first intent of ann."""

    def changed(run: Evidence) -> Evidence:
        intents = list(run.audit.entities)
        index = index_of(run)
        intents[index] = change(intents[index])
        return evidence(run.calls, intents, run.records)

    return changed


def called(**members: object) -> Change:
    """Change the answer to the first call of ann, which is the first of the run."""

    def changed(run: Evidence) -> Evidence:
        first, *others = run.calls
        answer = replace(first.answer, **members)  # type: ignore[type-var, arg-type]
        return replace(run, calls=[replace(first, answer=answer), *others])

    return changed


def logged(change: Callable[[list[LogRecord]], list[LogRecord]]) -> Change:
    """Change the records of ann; all of them stand before those of others then."""

    def changed(run: Evidence) -> Evidence:
        others = [item for item in run.records if item.write.entity != ANN]
        records = change([item for item in run.records if item.write.entity == ANN])
        return evidence(run.calls, run.audit.entities, [*records, *others])

    return changed


def value(number: float | None) -> Write:
    return Write(ANN, KEY, number)


def also(seconds: float, number: float | None) -> Change:
    return logged(lambda records: [*records, record(seconds, value(number))])


def saying(outcome: str) -> Change:
    return audited(lambda item: with_last(item, outcome=outcome))


def with_last(item: AuditedEntity, **members: object) -> AuditedEntity:
    return replace(item, events=(*item.events[:-1], replace(item.events[-1], **members)))  # type: ignore[arg-type]


def with_audit(**members: object) -> Change:
    return lambda run: replace(run, audit=replace(run.audit, **members))  # type: ignore[arg-type]


def observing(outcome: str) -> Change:
    def observed(item: AuditedEntity) -> AuditedEntity:
        unknown, seen, end = item.events
        return replace(item, events=(unknown, replace(seen, outcome=outcome), end))

    return audited(observed)


def late_drift(item: AuditedEntity) -> AuditedEntity:
    return replace(item, events=(*item.events, AuditEvent("drift", at(190))))


def half_applied(run: Evidence) -> Evidence:
    other = Write(ANN, "consumer_byte_rate", 1.0)
    half = audited(
        lambda item: replace(with_last(item, outcome="observed_other"), writes=(value(1), other))
    )
    return also(20, 1)(half(run))


def without_the_first(run: Evidence) -> Evidence:
    intents = [item for item in run.audit.entities if item.alteration_id != "a1"]
    return evidence(run.calls, intents, run.records)


def second_intent(run: Evidence, outcome: str = "not_applied") -> Evidence:
    first = run.audit.entities[index_of(run)]
    again = with_last(replace(first, alteration_id="b"), at=at(9.5), outcome=outcome)
    again = replace(again, at=at(9), committed_at=at(9.02))
    return evidence(run.calls, [*run.audit.entities, again], run.records)


def sent_again(run: Evidence) -> Evidence:
    """Repeat a request of which nothing was sent; it is another alteration."""
    run = second_intent(run, "applied")
    first = next(call for call in run.calls if ANN in call.entities)
    again = replace(first, answer=Answer(200, alteration_id="b", outcomes=("applied",)))
    return replace(
        run, calls=[*run.calls, replace(again, writes=(value(1),), began=at(9), ended=at(20))]
    )


def expecting_what_held(run: Evidence) -> Evidence:
    calls = [replace(item, expected=(value(1),)) if item.expected else item for item in run.calls]
    return replace(run, calls=calls)


def of_another(run: Evidence) -> Evidence:
    (other,) = (item for item in run.audit.entities if item.entity == user("zoe"))
    return called(alteration_id=other.alteration_id)(run)


CASES: dict[str, list[tuple[tuple[str, ...], Change]]] = {
    "every_record_has_an_intent": [
        (("applied",), also(100, 0.5)),
        (("applied",), audited(lambda item: replace(item, committed_at=at(1)))),
    ],
    "every_record_has_an_intent answers_and_audit_agree": [
        (("recorded late",), without_the_first),
    ],
    "conclusions_are_true": [
        (("found not applied",), saying("applied")),
        (("found applied",), saying("not_applied")),
        (("found not applied",), saying("validated")),
        (("found not applied",), also(180, 1)),
        (("found not applied",), lambda run: also(180, 1)(audited(late_drift)(run))),
        (("found not applied",), half_applied),
    ],
    "conclusions_are_true answers_are_true": [
        (("recorded late",), logged(lambda _: [])),
        (("refused",), also(0.15, 1)),
        (("not sent",), lambda run: also(0.15, 1)(sent_again(run))),
    ],
    "conclusions_are_true answers_are_true what_may_be_repeated_was_never_applied": [
        (("not sent",), also(0.15, 1)),
    ],
    "everything_is_concluded_once": [
        (("found not applied",), audited(lambda item: replace(item, events=item.events[:-1]))),
        (("applied",), audited(lambda item: replace(item, events=item.events * 2))),
        (("applied",), with_audit(open_locks=[("a1", 0)])),
    ],
    "order_is_the_clusters": [(("applied", "applied"), logged(lambda records: records[::-1]))],
    "order_is_the_clusters each_request_is_one_change": [(("applied", "applied"), also(400, 1))],
    "every_record_has_an_intent order_is_the_clusters each_request_is_one_change": [
        (("applied", "repeated"), lambda run: also(401, 2)(also(400, None)(run))),
    ],
    "locks_do_not_overlap": [
        (("applied", "applied"), audited(lambda item: with_last(item, at=at(301)))),
        (("found applied", "applied"), audited(lambda item: with_last(item, at=at(301)))),
    ],
    "provisional_verdicts_were_true": [
        (("found not applied",), observing("applied")),
        (("found applied",), logged(lambda records: [record(0.5, records[0].write)])),
    ],
    "the_end_is_the_last_record": [
        (("applied",), lambda run: replace(run, described={**run.described, ANN: {KEY: 0.5}})),
        (("applied",), with_audit(states={})),
    ],
    "answers_are_true": [
        (("found applied",), called(status=200)),
        (("recorded late",), logged(lambda records: [record(5, records[0].write)])),
    ],
    "what_may_be_repeated_was_never_applied": [
        (("found applied",), called(retry="safe")),
        (("found applied",), called(sent_to_cluster="no")),
    ],
    "answers_and_audit_agree": [
        (("found applied",), of_another),
        (("not sent",), called(alteration_id="nobody's")),
        (("applied",), saying("observed_other")),
    ],
    "documents_tell_the_conclusion": [
        (("applied",), lambda run: replace(run, documents={"a1": {}})),
        (("applied",), lambda run: replace(run, documents={"a1": {ANN: "unknown"}})),
    ],
    "each_request_is_one_change": [(("repeated",), second_intent)],
    "every_record_has_an_intent expectations_held": [
        (
            ("applied", "expecting"),
            logged(lambda both: [both[0], record(200, value(0.5)), both[1]]),
        ),
    ],
    "refused_expectations_did_not_hold": [(("applied", "mistaken"), expecting_what_held)],
}
"""By the rules that they break: what ann does, and what is wrong with it."""

LATE_APPLIES: list[tuple[tuple[str, ...], Change]] = [
    (("found not applied",), lambda run: also(180, 1)(audited(late_drift)(run))),
    (("applied",), lambda run: also(240, 1)(audited(late_drift)(run))),
]


@given(OTHERS)
def test_a_valid_run_is_accepted_and_counted(others: list[tuple[str, str]]):
    run = run_of(*COURSES, others=others)
    assert violations(run) == []
    figures = figures_of(run, [])
    assert figures["calls"] == len(run.calls)
    recovered = [item for item in run.audit.entities if item.was_recovered]
    assert figures["concluded by recovery"] == len(recovered) >= 3
    assert figures["without a definite answer"] >= 3
    assert (figures["not concluded"], figures["violations"]) == (0, 0)


@given(OTHERS)
def test_a_request_of_which_nothing_was_sent_may_be_repeated_with_its_key(
    others: list[tuple[str, str]],
):
    run = sent_again(run_of("not sent", others=others))
    assert violations(also(9.5, 1)(run)) == []


@given(OTHERS)
def test_what_is_applied_late_is_accepted_as_drift_where_lateness_has_no_bound(
    others: list[tuple[str, str]],
):
    for courses, late in LATE_APPLIES:
        run = late(run_of(*courses, others=others))
        assert violations(replace(run, bounded=False)) == []
        assert violations(run) != []


@given(OTHERS)
def test_an_invalid_history_is_rejected_whatever_others_do(others: list[tuple[str, str]]):
    for broken, cases in CASES.items():
        for number, (courses, change) in enumerate(cases):
            found = {item.rule for item in violations(change(run_of(*courses, others=others)))}
            assert found == set(broken.split()), number


def test_every_rule_is_violated_by_a_case():
    assert set(" ".join(CASES).split()) == {rule.__name__ for rule in RULES}


def test_what_is_not_concluded_is_counted_apart():
    found = [
        Violation("everything_is_concluded_once", "lock 1 is still taken"),
        Violation("conclusions_are_true", "not in the metadata log"),
    ]
    figures = figures_of(run_of(), found)
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
    writes = (Write(PAIR, "producer_byte_rate", 1.0), value(None))
    asked = Call(0, "client", writes, datetime.now(UTC))
    assert (asked.outcomes, asked.end) == ({}, End.UNKNOWN)
    asked.answer = Answer(207, alteration_id="a", outcomes=("applied", "refused"))
    assert asked.outcomes == {PAIR: "applied", ANN: "refused"}
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
    assert second.write == value(None)
    assert first.latest == second.at
    assert second.latest > second.at
