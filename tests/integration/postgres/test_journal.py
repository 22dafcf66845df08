import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from app.domain.alterations import AlterationResult, KafkaRefusal, Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotFoundError
from app.postgres.audit_log import PostgresJournal
from app.postgres.payload import MESSAGE_LENGTH
from app.service.ports.alterations import Alteration, Conclusion
from app.service.ports.audit_log import (
    AuditQuery,
)
from tests.integration.postgres.calls import Tables, stored
from tests.testkit.postgres import (
    HOSTILE_NAMES,
    audit_change,
    audit_request,
    intend,
    record_conclusion,
)

HOSTILE_REQUEST = tuple(
    audit_change(ordinal, {"user": name, "client-id": None}, {name: 1.5})
    for ordinal, name in enumerate(HOSTILE_NAMES)
)


def applied(request: Alteration) -> dict[int, AlterationResult]:
    return {
        entity.ordinal: AlterationResult(
            entity.entity,
            Outcome.APPLIED,
            changed=True,
            before=entity.before,
            after={**(entity.before or {}), "producer_byte_rate": 1024.0},
        )
        for entity in request.changes
    }


async def test_an_intent_can_be_read_back_whole_and_is_unknown_until_concluded(
    journal: PostgresJournal,
):
    local = AlterationResult(
        ClientQuotaEntity.of({"ip": "host.example"}),
        Outcome.REFUSED,
        changed=False,
        error=KafkaRefusal("INVALID_REQUEST", "not an address"),
    )
    request = replace(
        audit_request(*HOSTILE_REQUEST),
        local_refusals={90: local},
        reason="INC-1 \x00 \ud83d 'why' 😀",
        broker_id=3,
    )
    before = datetime.now(UTC)
    await intend(journal, request)
    record = await stored(journal, request)
    assert record.alteration == request
    assert before - timedelta(seconds=1) <= record.at <= datetime.now(UTC)
    assert [result.outcome for result in record.results.values()] == [
        *[Outcome.UNKNOWN] * len(HOSTILE_NAMES),
        Outcome.REFUSED,
    ]
    assert record.results[90] == local
    assert not record.concluded
    assert record.history == [(record.at, "intent", "committed before anything was sent")]


async def test_a_conclusion_completes_the_record(journal: PostgresJournal):
    request = audit_request(*HOSTILE_REQUEST)
    await intend(journal, request)
    at = (await stored(journal, request)).at
    results = applied(request)
    results[0] = AlterationResult(
        results[0].entity,
        Outcome.REFUSED,
        changed=False,
        before={"a": 1.0},
        error=KafkaRefusal("POLICY_VIOLATION", "no \x00\n"),
        warnings=("begins with User:",),
    )
    sent_at = at + timedelta(microseconds=17)
    events = [(sent_at, "sent", "handed to broker 1"), (sent_at, "outcome", "applied, refused")]
    await record_conclusion(journal, Conclusion(request.alteration_id, results, events))
    record = await stored(journal, request)
    assert record.results == results
    assert record.concluded
    assert record.history == [(at, "intent", "committed before anything was sent"), *events]


@pytest.mark.parametrize("action", ["denied", "validate", "alter"])
async def test_a_final_request_is_recorded_with_its_results_at_once(
    journal: PostgresJournal, action: str
):
    ops = (Op("", None), Op("k", Decimal("1e999")), Op("k", Decimal("-0.30000000000000004441")))
    other = audit_change(len(HOSTILE_REQUEST), {"foo": "bar", "user": "x" * 100_000}, ops=ops)
    request = audit_request(*HOSTILE_REQUEST, other, action=action)
    results = {
        entity.ordinal: AlterationResult(
            entity.entity, Outcome.REFUSED, error=KafkaRefusal("X", "no")
        )
        for entity in request.changes
    }
    at = await journal.record_final(request, results)
    record = await stored(journal, request)
    assert (record.alteration, record.at, record.results) == (request, at, results)
    assert record.concluded
    assert [event for _, event, _ in record.history] == ["outcome"]
    page = await journal.audit_rows(AuditQuery())
    assert [(row.action, row.outcome, row.error) for row in page.rows] == [
        (action, "refused", KafkaRefusal("X", "no"))
    ] * len(request.changes)


async def test_a_denied_request_that_could_not_be_read_is_one_row(journal: PostgresJournal):
    request = audit_request(action="denied")
    at = await journal.record_final(request, {})
    (row,) = (await journal.audit_rows(AuditQuery())).rows
    assert (row.alteration_id, row.at, row.outcome) == (request.alteration_id, at, "refused")
    assert (row.entity, row.ops, row.before, row.after, row.error) == (None,) * 5
    record = await stored(journal, request)
    assert (record.alteration, record.results, record.concluded) == (request, {}, True)


async def test_the_payload_is_json_with_integers_and_words_where_json_lacks_a_number(
    journal: PostgresJournal, tables: Tables
):
    values = {"a": 2.0**63, "b": math.inf, "c": math.nan, "d": 0.5}
    await intend(journal, audit_request(audit_change(0, {"user": "\x00"}, values)))
    (row,) = tables.run("select document from audit_entity")
    assert '"before":{"a":9223372036854775808,"b":"Infinity","c":"NaN","d":0.5}' in row.document
    assert '"entity":{"user":"\\u0000"}' in row.document


async def test_a_row_has_no_values_before_its_conclusion(
    journal: PostgresJournal,
):
    request = audit_request(audit_change(0, {"user": "a"}, {"consumer_byte_rate": 5.0}))
    await intend(journal, request)
    (row,) = (await journal.audit_rows(AuditQuery())).rows
    assert (row.before, row.after, row.outcome) == (None, None, "unknown")
    entity = request.changes[0].entity
    result = AlterationResult(entity, Outcome.APPLIED, True, {"consumer_byte_rate": 6.0}, {})
    await record_conclusion(journal, Conclusion(request.alteration_id, {0: result}))
    (row,) = (await journal.audit_rows(AuditQuery())).rows
    assert (row.before, row.after, row.outcome) == ({"consumer_byte_rate": 6.0}, {}, "applied")
    assert row.ops == [{"key": "producer_byte_rate", "value": 1024}]
    assert (row.principal, row.client_address) == ("User:alice", "192.0.2.7")
    assert (row.authentication, row.request_id, row.reason) == ("bearer", "req-1", None)


async def test_repeating_a_conclusion_changes_nothing(journal: PostgresJournal, tables: Tables):
    request = audit_request(*HOSTILE_REQUEST)
    await intend(journal, request)
    results = applied(request)
    results[1] = replace(results[1], error=KafkaRefusal(None, "m" * 2 * MESSAGE_LENGTH))
    half = {ordinal: results[ordinal] for ordinal in list(results)[:3]}
    sent = (datetime.now(UTC), "sent", "once")
    await record_conclusion(journal, Conclusion(request.alteration_id, half, [sent]))
    assert not (await stored(journal, request)).concluded
    for _ in range(2):
        await record_conclusion(journal, Conclusion(request.alteration_id, results))
    record = await stored(journal, request)
    assert record.concluded
    assert record.history[1:] == [sent]
    assert len(tables.run("select 1 from audit_entity where seq > 0")) == len(HOSTILE_NAMES)


async def test_a_second_and_different_conclusion_is_refused(journal: PostgresJournal):
    request = audit_request(audit_change(0, {"user": "a"}))
    await intend(journal, request)
    results = applied(request)
    await record_conclusion(journal, Conclusion(request.alteration_id, results))
    other = {0: replace(results[0], outcome=Outcome.UNKNOWN)}
    with pytest.raises(ValueError, match="already applied"):
        await record_conclusion(journal, Conclusion(request.alteration_id, other))
    assert (await stored(journal, request)).results == results


async def test_there_is_no_conclusion_without_an_intent(journal: PostgresJournal):
    recorded, unrecorded = (audit_request(audit_change(0, {"user": "a"})) for _ in range(2))
    await intend(journal, recorded)
    beyond = {9: applied(recorded)[0]}
    for conclusion in (
        Conclusion(unrecorded.alteration_id, applied(unrecorded)),
        Conclusion(recorded.alteration_id, beyond),
    ):
        with pytest.raises(NotFoundError):
            await record_conclusion(journal, conclusion)


async def test_asking_whether_the_log_is_writable_leaves_no_trace(
    journal: PostgresJournal, tables: Tables
):
    await journal.check_writable()
    assert tables.count("audit_event") == 0


async def test_rows_that_arrive_between_two_pages_do_not_shift_them(journal: PostgresJournal):
    for number in range(10):
        await intend(journal, audit_request(audit_change(0, {"user": f"user-{number}"})))
    whole = await journal.audit_rows(AuditQuery(limit=10))
    first = await journal.audit_rows(AuditQuery(limit=5))
    await intend(journal, audit_request(audit_change(0, {"user": "new"})))
    second = await journal.audit_rows(AuditQuery(limit=5, after=first.next_after))
    assert [*first.rows, *second.rows] == [*whole.rows]
    assert len(whole.rows) == 10
