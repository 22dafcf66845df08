"""Late answers: a broker's own word on many entities is recorded together."""

import asyncio
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.callers import Caller
from app.domain.entities import ClientQuotaEntity
from app.service.alterations.alteration_tasks import AlterationTasks
from app.service.alterations.late_answers import LateAnswers
from app.service.audit_records import AuditEntity, AuditRequest
from app.service.cluster_ports import AlterAnswer, EntityVerdict
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import EPOCH, FakeJournal, refused

NUMBER = 2500


def request_of(number: int) -> AuditRequest:
    ops = (Op("producer_byte_rate", Decimal(5)),)
    entities = (ClientQuotaEntity.of({"user": f"user-{each}"}) for each in range(number))
    audited = tuple(
        AuditEntity(ordinal, ClientQuotaAlteration(entity, ops), {})
        for ordinal, entity in enumerate(entities)
    )
    caller = Caller("User:ci", "127.0.0.1", "bearer")
    return AuditRequest("a1", "fake", caller, "alter", "r1", audited)


def answered(request: AuditRequest, *verdicts: EntityVerdict) -> AlterAnswer:
    by_entity = {
        one.alteration.entity: verdicts[one.ordinal % len(verdicts)] for one in request.entities
    }
    return AlterAnswer(by_entity, 1, EPOCH, EPOCH)


async def listened(
    journal: FakeJournal, request: AuditRequest, late: AlterAnswer
) -> CountedMetrics:
    metrics, tasks = CountedMetrics(), AlterationTasks()
    coming: asyncio.Future[AlterAnswer] = asyncio.get_running_loop().create_future()
    silence = answered(request, EntityVerdict(Outcome.UNKNOWN))
    given = AlterAnswer(silence.verdicts, 1, EPOCH, EPOCH, late=coming)
    LateAnswers(journal, tasks, metrics).listen(request, given)
    coming.set_result(late)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    async with asyncio.timeout(30):
        await asyncio.wait(others)
    return metrics


async def test_the_verdicts_on_many_entities_are_recorded_in_portions():
    log: list[str] = []
    journal, request = FakeJournal(log), request_of(NUMBER)
    verdicts = (EntityVerdict(Outcome.APPLIED), refused("INVALID_REQUEST"))
    metrics = await listened(journal, request, answered(request, *verdicts))
    assert log == ["record_recovery"] * 3
    assert [one.ordinal for one in journal.recovered] == list(range(NUMBER))
    assert all(one.final for one in journal.recovered)
    first, second, *_ = journal.recovered
    assert (first.result.outcome, first.result.after) == (
        Outcome.APPLIED,
        {"producer_byte_rate": 5.0},
    )
    assert second.result.outcome is Outcome.REFUSED
    assert second.evidence["late_answer"] == "refused"
    assert metrics.counts == {
        "late": NUMBER,
        "applied by late_answer": NUMBER / 2,
        "refused by late_answer": NUMBER / 2,
    }


async def test_a_late_silence_is_no_verdict():
    log: list[str] = []
    journal, request = FakeJournal(log), request_of(3)
    metrics = await listened(journal, request, answered(request, EntityVerdict(Outcome.UNKNOWN)))
    assert (log, journal.recovered, metrics.counts) == ([], [], {})


async def test_a_late_answer_that_is_known_already_is_not_counted_as_recovered():
    journal, request = FakeJournal([]), request_of(2)
    journal.concluded = {("a1", 0)}
    metrics = await listened(journal, request, answered(request, EntityVerdict(Outcome.APPLIED)))
    assert metrics.counts == {"late": 2, "applied by late_answer": 1}


async def test_a_late_answer_that_cannot_be_recorded_is_left_to_recovery(
    caplog: pytest.LogCaptureFixture,
):
    journal, request = FakeJournal([]), request_of(2)
    journal.broken = {"record_recovery"}
    metrics = await listened(journal, request, answered(request, EntityVerdict(Outcome.APPLIED)))
    assert metrics.counts == {"late": 2}
    assert "the late answer to a1 was not recorded: Postgres is down." in caplog.text
