"""The life of an alteration: what is recorded, what is sent, what is answered."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.alterations import ClientQuotaAlteration, Outcome, Overall
from app.domain.errors import (
    EntityBusyError,
    NotSentError,
    OutcomeNotRecordedError,
    Retry,
    Sent,
    UnknownOutcomeError,
)
from app.service.cluster_ports import EntityVerdict
from tests.testkit.fake_ports import Verdicts
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.alter_world import ALICE, BOB, KEY, World, setting, until


async def test_the_intent_is_committed_before_anything_is_sent_and_the_outcome_after(
    world: World,
) -> None:
    report = await world.alter(setting(ALICE, "5"))
    assert world.log == ["record_intent", "send", "record_conclusion"]
    assert report.overall is Overall.APPLIED
    assert report.readable is True
    result = report.results[0]
    assert (result.changed, result.before, result.after) == (True, {}, {KEY: 5.0})
    conclusion = world.journal.conclusions[0]
    assert conclusion.alteration_id == report.alteration_id
    assert [event for _, event, _ in conclusion.events] == ["sent", "outcome"]


async def test_setting_what_already_holds_is_applied_and_changes_nothing(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0, "consumer_byte_rate": 7.0}
    report = await world.alter(setting(ALICE, "5"))
    assert report.results[0].changed is False
    assert report.results[0].after == {KEY: 5.0, "consumer_byte_rate": 7.0}


async def test_nothing_is_sent_when_the_intent_cannot_be_committed(world: World) -> None:
    world.journal.broken = {"record_intent"}
    with pytest.raises(NotSentError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert world.log == ["record_intent"]
    assert (caught.value.sent, caught.value.retry) == (Sent.NO, Retry.SAFE)


async def test_an_answer_that_was_lost_is_recorded_and_answered_as_unknown(world: World) -> None:
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN))
    with pytest.raises(UnknownOutcomeError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert (caught.value.sent, caught.value.retry) == (Sent.MAYBE, Retry.SAME_KEY_ONLY)
    result = world.journal.conclusions[0].results[0]
    assert (result.outcome, result.after, result.changed) == (Outcome.UNKNOWN, None, None)
    assert caught.value.alteration_id == world.journal.intents[0].alteration_id


async def test_what_could_not_be_handed_over_is_recorded_as_not_sent(world: World) -> None:
    def unreachable(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        raise NotSentError("Connection refused.", code="cluster-unreachable")

    world.brokers.fault = unreachable
    for alterations in ([setting(ALICE, "5")], [setting(ALICE, "5"), setting(BOB, "6")]):
        with pytest.raises(NotSentError):
            await world.alter(*alterations)
    recorded = [
        [result.outcome for result in conclusion.results.values()]
        for conclusion in world.journal.conclusions
    ]
    assert recorded == [[Outcome.NOT_SENT], [Outcome.NOT_SENT, Outcome.NOT_SENT]]


@in_virtual_time
async def test_a_verdict_that_cannot_be_recorded_is_told_and_recorded_later(world: World) -> None:
    world.journal.broken = {"record_conclusion"}
    with pytest.raises(OutcomeNotRecordedError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert caught.value.sent is Sent.YES
    assert world.brokers.quotas == {ALICE: {KEY: 5.0}}
    world.journal.broken = set()
    assert await world.tasks.drain(30) == 0
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


async def test_an_intent_that_took_too_long_is_not_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.alterations.alteration_sending.SEND_BY_S", -1.0)
    with pytest.raises(NotSentError):
        await world.alter(setting(ALICE, "5"))
    assert world.log == ["record_intent", "record_conclusion"]


async def test_a_client_that_hangs_up_does_not_cut_its_alteration(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    waiting = asyncio.create_task(world.alter(setting(ALICE, "5")))
    await until(lambda: "send" in world.log)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    world.brokers.gate.set()
    assert await world.tasks.drain(30) == 0
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


@in_virtual_time
async def test_a_second_alteration_of_an_entity_in_flight_is_busy(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    first = asyncio.create_task(world.alter(setting(ALICE, "5")))
    await until(lambda: "send" in world.log)
    with pytest.raises(EntityBusyError) as caught:
        await world.alter(setting(BOB, "1"), setting(ALICE, "6"))
    assert caught.value.retry_after_s == 1
    world.brokers.gate.set()
    assert (await first).overall is Overall.APPLIED
    assert (await world.alter(setting(ALICE, "6"))).results[0].before == {KEY: 5.0}


async def test_a_stopping_service_takes_no_new_alteration(world: World) -> None:
    await world.tasks.drain(0)
    with pytest.raises(NotSentError):
        await world.alter(setting(ALICE, "5"))
    assert world.log == []


@in_virtual_time
async def test_an_entity_whose_outcome_is_unknown_stays_taken(world: World) -> None:
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN))
    with pytest.raises(UnknownOutcomeError) as unknown:
        await world.alter(setting(ALICE, "5"))
    with pytest.raises(EntityBusyError) as busy:
        await world.alter(setting(ALICE, "6"))
    assert busy.value.alteration_id == unknown.value.alteration_id
    assert world.metrics.counts["slot taken"] == 1
