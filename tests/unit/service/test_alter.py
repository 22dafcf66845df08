"""The life of an alteration: what is recorded, what is sent, what is answered."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome, Overall
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    ClusterAuthorizationError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotSentError,
    OutcomeNotRecordedError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnknownOutcomeError,
)
from app.service.alterations import alteration_outcomes, entity_slots
from app.service.alterations.alteration_command import (
    Wait,
)
from app.service.cluster_ports import EntityVerdict
from tests.support.fake_ports import Verdicts, refused
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


async def test_several_entities_are_validated_by_the_broker_before_any_is_applied(
    world: World,
) -> None:
    await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert world.log == ["record_intent", "validate", "send", "record_conclusion"]


async def test_one_refused_entity_holds_all_others_back(world: World) -> None:
    world.answer(bob=refused("INVALID_REQUEST", "the broker's own words"))
    with pytest.raises(InvalidRequestError) as caught:
        await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert world.log == ["record_intent", "validate", "record_conclusion"]
    assert [one.outcome for one in caught.value.results or ()] == [
        Outcome.NOT_APPLIED,
        Outcome.REFUSED,
    ]
    assert caught.value.kafka_error == "INVALID_REQUEST"
    assert caught.value.violations[0].pointer == "/alterations/1"
    assert caught.value.sent is Sent.NO
    assert world.brokers.quotas == {}


async def test_without_all_or_nothing_the_others_are_applied(world: World) -> None:
    world.answer(bob=refused("INVALID_REQUEST"))
    report = await world.alter(setting(ALICE, "5"), setting(BOB, "6"), all_or_nothing=False)
    assert world.log == ["record_intent", "send", "record_conclusion"]
    assert [one.outcome for one in report.results] == [Outcome.APPLIED, Outcome.REFUSED]
    assert report.overall is Overall.PARTIAL


async def test_without_all_or_nothing_our_own_rules_refuse_only_the_entity_that_breaks_them(
    world: World,
) -> None:
    report = await world.alter(setting(ALICE, "0"), setting(BOB, "6"), all_or_nothing=False)
    assert [one.outcome for one in report.results] == [Outcome.REFUSED, Outcome.APPLIED]
    intent = world.journal.intents[0]
    assert [entity.ordinal for entity in intent.entities] == [1]
    assert list(intent.local_refusals) == [0]


async def test_what_our_own_rules_refuse_as_a_whole_is_neither_recorded_nor_sent(
    world: World,
) -> None:
    for options in ({}, {"all_or_nothing": False}):
        with pytest.raises(InvalidRequestError):
            await world.alter(setting(ALICE, "0"), **options)
    with pytest.raises(InvalidRequestError):
        await world.alter(setting(ALICE, "5"), setting(ALICE, "6"), all_or_nothing=False)
    assert world.log == []


async def test_validate_only_asks_the_broker_and_is_kept_without_an_intent(world: World) -> None:
    report = await world.alter(setting(ALICE, "5"), validate_only=True)
    assert world.log == ["validate", "record_final"]
    assert report.overall is Overall.VALIDATED
    assert world.brokers.quotas == {}
    assert world.journal.finals[0][0].action == "validate"


async def test_validate_only_that_the_broker_refuses_is_an_error_and_is_kept(world: World) -> None:
    world.answer(alice=refused("POLICY_VIOLATION"))
    with pytest.raises(InvalidRequestError):
        await world.alter(setting(ALICE, "5"), validate_only=True)
    assert world.log == ["validate", "record_final"]


@pytest.mark.parametrize(
    ("kafka_error", "error", "retry"),
    [
        ("INVALID_REQUEST", InvalidRequestError, Retry.NEVER),
        ("POLICY_VIOLATION", InvalidRequestError, Retry.NEVER),
        ("CLUSTER_AUTHORIZATION_FAILED", ClusterAuthorizationError, Retry.NEVER),
        ("THROTTLING_QUOTA_EXCEEDED", TooManyRequestsError, Retry.SAFE),
    ],
)
async def test_a_refusal_by_the_controller_is_recorded_and_answered_as_what_it_is(
    world: World, kafka_error: str, error: type[QuotaError], retry: Retry
) -> None:
    world.answer(alice=refused(kafka_error, throttle_time_ms=2500))
    with pytest.raises(error) as caught:
        await world.alter(setting(ALICE, "5"))
    assert (caught.value.sent, caught.value.retry) == (Sent.YES, retry)
    assert caught.value.retry_after_s == (2.5 if error is TooManyRequestsError else None)
    assert world.journal.conclusions[0].results[0].outcome is Outcome.REFUSED


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
    for conclusion in world.journal.conclusions:
        assert {one.outcome for one in conclusion.results.values()} == {Outcome.NOT_SENT}


async def test_a_verdict_that_cannot_be_recorded_is_told_and_recorded_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alteration_outcomes, "ANSWER_WITHOUT_RECORD_S", 0.05)
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


async def test_a_second_alteration_of_an_entity_in_flight_is_busy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_slots, "SLOT_WAIT_S", 0.01)
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


async def test_an_expectation_that_does_not_hold_refuses_everything_and_is_kept(
    world: World,
) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    with pytest.raises(ExpectationFailedError) as caught:
        await world.alter(
            setting(ALICE, "6"),
            setting(BOB, "6"),
            expected={0: {KEY: Decimal(4), "consumer_byte_rate": None}},
        )
    assert caught.value.violations[0].values == {"current": {KEY: 5.0}}
    assert world.log == ["record_intent", "quorum", "record_conclusion"]
    outcomes = [one.outcome for one in world.journal.conclusions[0].results.values()]
    assert outcomes == [Outcome.REFUSED, Outcome.NOT_APPLIED]


async def test_an_expectation_that_holds_lets_the_change_pass(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0, "request_percentage": float("nan")}
    report = await world.alter(
        setting(ALICE, "6"),
        expected={
            0: {KEY: Decimal(5), "consumer_byte_rate": None, "request_percentage": float("nan")}
        },
    )
    assert report.overall is Overall.APPLIED


async def test_a_change_that_does_not_show_in_time_is_applied_and_not_readable(
    world: World,
) -> None:
    world.brokers.stale_reads = 1000
    report = await world.alter(setting(ALICE, "5"), wait_ms=50)
    assert (report.overall, report.readable) == (Overall.APPLIED, False)


async def test_nobody_waits_for_a_change_when_wait_is_none(world: World) -> None:
    world.brokers.stale_reads = 1000
    report = await world.alter(setting(ALICE, "5"), wait=Wait.NONE)
    assert (report.overall, report.readable) == (Overall.APPLIED, None)


@pytest.mark.parametrize("permitted", [True, False])
async def test_a_stale_broker_does_not_make_before_a_lie(world: World, permitted: bool) -> None:
    world.brokers.permits_quorum = permitted
    await world.alter(setting(ALICE, "5"), wait=Wait.NONE)
    world.brokers.stale_reads = 3
    report = await world.alter(setting(ALICE, "6"), wait=Wait.NONE)
    assert report.results[0].before == {KEY: 5.0}


async def test_all_brokers_are_asked_when_that_is_what_the_caller_waits_for(world: World) -> None:
    report = await world.alter(setting(ALICE, "5"), wait=Wait.ALL_BROKERS)
    assert report.readable is True


async def test_what_was_applied_is_told_where_nobody_knows_which_brokers_are_live(
    world: World,
) -> None:
    world.brokers.all_fenced = True
    report = await world.alter(setting(ALICE, "5"), wait=Wait.ALL_BROKERS)
    assert (report.overall, report.readable) == (Overall.APPLIED, False)


async def test_what_other_tools_stored_can_be_removed(world: World) -> None:
    odd = ClientQuotaEntity.of({"ip": "host.example"})
    world.brokers.quotas[odd] = {"connection_creation_rate": 5.0}
    report = await world.alter(
        ClientQuotaAlteration(odd, (Op("connection_creation_rate", remove=True),))
    )
    assert report.results[0].after == {}


async def test_an_entity_whose_outcome_is_unknown_stays_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_slots, "SLOT_WAIT_S", 0.05)
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN))
    with pytest.raises(UnknownOutcomeError) as unknown:
        await world.alter(setting(ALICE, "5"))
    with pytest.raises(EntityBusyError) as busy:
        await world.alter(setting(ALICE, "6"))
    assert busy.value.alteration_id == unknown.value.alteration_id
    assert world.metrics.counts["slot taken"] == 1


async def test_a_validation_checks_expectations_too(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    with pytest.raises(ExpectationFailedError):
        await world.alter(setting(ALICE, "6"), validate_only=True, expected={0: {KEY: Decimal(4)}})
    assert world.log == ["quorum", "record_final"]
    await world.alter(setting(ALICE, "6"), validate_only=True, expected={0: {KEY: Decimal(5)}})
    assert world.log[2:] == ["quorum", "validate", "record_final"]
