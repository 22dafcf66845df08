"""An alteration from request to response: what is recorded, judged, sent and waited for."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome, Overall
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotFoundError,
    NotSentError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnknownOutcomeError,
)
from app.domain.plans import DesiredQuota, PlanRequest
from app.service.plans import PlanCommand, Plans
from app.service.ports.alterations import Alteration, IdempotencyKey, Wait
from app.service.ports.brokers import BarrierUnavailableError, Verdict
from tests.testkit.event_loops import until, until_quiet
from tests.testkit.fake_ports import CI, FakePlans, Verdicts, refused
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.conftest import ALICE, BOB, KEY, World, setting


async def test_the_intent_is_committed_before_anything_is_sent_and_the_outcome_after(
    world: World,
) -> None:
    report = await world.alter(setting(ALICE, "5"))
    assert world.log == ["record_intent", "quorum", "send", "record_conclusion"]
    assert report.overall is Overall.APPLIED
    assert report.readable is True
    result = report.results[0]
    assert (result.changed, result.before, result.after) == (True, {}, {KEY: 5.0})
    conclusion = world.journal.conclusions[0]
    assert conclusion.alteration_id == report.alteration.alteration_id
    assert [event for _, event, _ in conclusion.events] == ["sent", "outcome"]


async def test_setting_what_already_holds_is_applied_and_changes_nothing(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0, "consumer_byte_rate": 7.0}
    report = await world.alter(setting(ALICE, "5"))
    assert report.results[0].changed is False
    assert report.results[0].after == {KEY: 5.0, "consumer_byte_rate": 7.0}


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


@in_virtual_time
async def test_an_entity_whose_outcome_is_unknown_stays_taken(world: World) -> None:
    world.answer(alice=Verdict(Outcome.UNKNOWN))
    with pytest.raises(UnknownOutcomeError) as unknown:
        await world.alter(setting(ALICE, "5"))
    with pytest.raises(EntityBusyError) as busy:
        await world.alter(setting(ALICE, "6"))
    assert busy.value.alteration_id == unknown.value.alteration_id
    assert world.metrics.counts["quota_slot_conflicts"] == 1


async def test_nobody_waits_for_an_entity_that_is_held_for_longer_than_a_wait(world: World) -> None:
    world.answer(alice=Verdict(Outcome.UNKNOWN))
    with pytest.raises(UnknownOutcomeError):
        await world.alter(setting(ALICE, "5"))
    world.log.clear()
    world.journal.held_for_s = 90.0
    with pytest.raises(EntityBusyError) as busy:
        await world.alter(setting(ALICE, "6"))
    assert busy.value.retry_after_s == 90.0
    assert world.log == ["record_intent"]


async def test_a_change_that_does_not_show_in_time_is_applied_and_not_readable(
    world: World,
) -> None:
    def falls_behind(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        world.brokers.stale_reads = 1000
        return {}

    world.brokers.fault = falls_behind
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


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("wanted", ["1000", "3000"])
async def test_what_another_tool_has_just_changed_is_what_held_before(
    world: World, wanted: str, *, validate_only: bool
) -> None:
    await world.alter(setting(ALICE, "1000"))
    world.brokers.quotas[ALICE] = {KEY: 2000.0}
    world.brokers.stale_reads = 1000
    report = await world.alter(setting(ALICE, wanted), validate_only=validate_only)
    assert (report.results[0].before, report.results[0].changed) == ({KEY: 2000.0}, True)


async def test_all_brokers_are_asked_when_that_is_what_the_caller_waits_for(world: World) -> None:
    report = await world.alter(setting(ALICE, "5"), wait=Wait.ALL_BROKERS)
    assert report.readable is True


async def test_what_was_applied_is_reported_where_nobody_knows_which_brokers_are_live(
    world: World,
) -> None:
    world.brokers.all_fenced = True
    report = await world.alter(setting(ALICE, "5"), wait=Wait.ALL_BROKERS)
    assert (report.overall, report.readable) == (Overall.APPLIED, False)


@in_virtual_time
async def test_who_comes_while_an_alteration_is_in_flight_shares_one_barrier_and_one_request(
    world: World,
) -> None:
    world.brokers.gate = asyncio.Event()
    entities = [ClientQuotaEntity.of({"user": f"user-{number}"}) for number in range(3)]
    first = asyncio.create_task(world.alter(setting(ALICE, "5"), wait=Wait.NONE))
    await until(lambda: "send" in world.log)
    world.brokers.quotas[entities[0]] = {KEY: 4.0}
    options = {"wait": Wait.NONE, "expected": {0: {KEY: None}}}
    tasks = [asyncio.create_task(world.alter(setting(item, "6"), **options)) for item in entities]
    await until_quiet()
    assert world.log.count("quorum") == 1, "a barrier would wait behind the alteration in flight"
    world.brokers.gate.set()
    failed, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert (world.log.count("quorum"), world.log.count("send")) == (2, 2)
    assert isinstance(failed, ExpectationFailedError)
    for report in (await first, *others):
        assert not isinstance(report, BaseException)
        assert report.overall is Overall.APPLIED
    assert world.brokers.quotas[entities[0]] == {KEY: 4.0}


@in_virtual_time
async def test_who_is_recorded_is_answered_while_the_next_group_is_at_the_broker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while it is on its way there: the event loop would work on answers instead."""
    record_intents, locks = world.journal.record_intents, asyncio.Event()
    monkeypatch.setattr(world.service.pipeline.priority, "_longest_s", 30.0)

    async def second_waits(intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        if world.journal.intents:
            await locks.wait()
        return await record_intents(intents)

    monkeypatch.setattr(world.journal, "record_intents", second_waits)
    world.brokers.gate = asyncio.Event()
    first = asyncio.create_task(world.alter(setting(ALICE, "5"), wait=Wait.NONE))
    await until(lambda: "send" in world.log)
    second = asyncio.create_task(world.alter(setting(BOB, "6"), wait=Wait.NONE))
    world.brokers.gate.set()
    await until(lambda: len(world.journal.conclusions) == 1)
    await until_quiet()
    assert not first.done()
    world.brokers.gate.clear()
    locks.set()
    assert (await first).overall is Overall.APPLIED
    assert not second.done()
    world.brokers.gate.set()
    assert (await second).overall is Overall.APPLIED


async def test_what_was_seen_while_the_intent_was_committed_counts_only_if_it_still_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_intents = world.journal.record_intents

    async def recorded_late(intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        await until_quiet()  # what is looked at ahead of the barrier has been seen
        world.brokers.quotas[ALICE] = {KEY: 4.0}
        world.brokers.committed += 1
        return await record_intents(intents)

    monkeypatch.setattr(world.journal, "record_intents", recorded_late)
    with pytest.raises(ExpectationFailedError):
        await world.alter(setting(ALICE, "5"), expected={0: {KEY: None}})
    assert "send" not in world.log


async def test_where_the_broker_reports_no_offset_there_is_no_barrier(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def published_offset(**_: object) -> int:
        raise BarrierUnavailableError

    monkeypatch.setattr(world.brokers, "published_offset", published_offset)
    report = await world.alter(setting(ALICE, "5"), expected={0: {KEY: None}})
    assert report.overall is Overall.APPLIED


async def test_a_broker_that_does_not_catch_up_ends_an_alteration_unsent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def published_offset(**_: object) -> int:
        return 8

    monkeypatch.setattr(world.brokers, "published_offset", published_offset)
    with pytest.raises(NotSentError, match="Broker 1 did not catch up within"):
        await world.alter(setting(ALICE, "5"))
    assert world.brokers.quotas == {}


async def test_only_what_may_have_changed_the_cluster_makes_the_image_stale(world: World) -> None:
    await world.alter(setting(ALICE, "5"), validate_only=True)
    world.brokers.fault = lambda alterations, _: {
        alteration.entity: refused("INVALID_REQUEST") for alteration in alterations
    }
    with pytest.raises(InvalidRequestError):
        await world.alter(setting(ALICE, "5"))
    assert (world.image.forgotten, world.image.noted) == (0, [])
    world.brokers.fault = None
    await world.alter(setting(ALICE, "5"), wait=Wait.NONE)
    assert world.image.noted == [{ALICE: {"producer_byte_rate": 5.0}}]
    assert world.image.forgotten == 0
    world.answer(bob=Verdict(Outcome.UNKNOWN))
    with pytest.raises(UnknownOutcomeError):
        await world.alter(setting(BOB, "5"))
    assert (world.image.forgotten, len(world.image.noted)) == (1, 1)


async def test_what_was_applied_is_reported_whatever_goes_wrong_with_the_wait(world: World) -> None:
    describe = world.brokers.describe_client_quotas

    async def fails_when_sent(*arguments: object, **options: object) -> object:
        if "send" in world.log:
            raise RuntimeError("nobody has thought of that")
        return await describe(*arguments, **options)  # type: ignore[arg-type]

    world.brokers.describe_client_quotas = fails_when_sent  # type: ignore[assignment, method-assign]
    report = await world.alter(setting(ALICE, "5"))
    assert (report.overall, report.readable) == (Overall.APPLIED, False)


async def test_several_entities_are_validated_by_the_broker_before_any_is_applied(
    world: World,
) -> None:
    await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert world.log == ["record_intent", "quorum", "validate", "send", "record_conclusion"]


async def test_validate_only_asks_the_broker_and_is_recorded_without_an_intent(
    world: World,
) -> None:
    report = await world.alter(setting(ALICE, "5"), validate_only=True)
    assert world.log == ["quorum", "validate", "record_final"]
    assert report.overall is Overall.VALIDATED
    assert world.brokers.quotas == {}
    assert world.journal.finals[0][0].action == "validate"


async def test_validate_only_that_the_broker_refuses_is_an_error_and_is_recorded(
    world: World,
) -> None:
    world.answer(alice=refused("POLICY_VIOLATION"))
    with pytest.raises(InvalidRequestError):
        await world.alter(setting(ALICE, "5"), validate_only=True)
    assert world.log == ["quorum", "validate", "record_final"]


@pytest.mark.parametrize(
    ("kafka_error", "error", "retry"),
    [
        ("INVALID_REQUEST", InvalidRequestError, Retry.NEVER),
        ("POLICY_VIOLATION", InvalidRequestError, Retry.NEVER),
        ("CLUSTER_AUTHORIZATION_FAILED", BrokerError, Retry.NEVER),
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


async def test_a_validation_checks_expectations_too(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    with pytest.raises(ExpectationFailedError):
        await world.alter(setting(ALICE, "6"), validate_only=True, expected={0: {KEY: Decimal(4)}})
    assert world.log == ["quorum", "record_final"]
    await world.alter(setting(ALICE, "6"), validate_only=True, expected={0: {KEY: Decimal(5)}})
    assert world.log[2:] == ["quorum", "validate", "record_final"]


ODD = "odd_key"
"""A key that no rule knows: it may be removed where it is stored."""

TAKE_ODD_AWAY = ClientQuotaAlteration(ALICE, (Op(ODD, remove=True),))


async def odd_until_the_lock(world: World) -> None:
    """Let the odd key be stored when it is judged first, and gone behind the barrier."""
    world.brokers.quotas[ALICE] = {ODD: 1.0}
    await world.brokers.describe_client_quotas(ALL_ENTITIES)
    del world.brokers.quotas[ALICE]
    world.brokers.stale_reads = 9  # until a barrier is set


async def test_what_only_an_old_read_excuses_is_refused_behind_the_barrier(world: World):
    """The log has the refusal, the key is free, and a repeat is judged anew."""
    key = IdempotencyKey("k", b"f")
    for _ in range(2):
        await odd_until_the_lock(world)
        with pytest.raises(InvalidRequestError) as raised:
            await world.alter(setting(BOB, "5"), TAKE_ODD_AWAY, key=key)
        (violation,) = raised.value.violations
        assert (violation.pointer, violation.code) == ("/alterations/1/ops/0/key", "unknown-key")
        assert (raised.value.sent, raised.value.alteration_id) == ("no", None)
        found = world.journal.conclusions[-1]
        outcomes = {n: result.outcome for n, result in found.results.items()}
        assert outcomes == {0: Outcome.NOT_APPLIED, 1: Outcome.REFUSED}
        assert world.journal.locks == {}
    assert len(world.journal.intents) == 2
    assert not {"send", "validate"} & set(world.log)


async def test_one_that_only_an_old_read_excuses_is_refused_alone_where_each_stands_alone(
    world: World,
):
    await odd_until_the_lock(world)
    wrong = ClientQuotaAlteration(ClientQuotaEntity.of({"user": "x"}), (Op("?", Decimal(1)),))
    alterations = (wrong, TAKE_ODD_AWAY, setting(BOB, "5"))
    options = {"all_or_nothing": False, "key": IdempotencyKey("k", b"f")}
    refused = [Outcome.REFUSED, Outcome.REFUSED, Outcome.APPLIED]
    for replayed in (False, True):
        record = await world.alter(*alterations, **options)
        assert [result.outcome for result in record.results.values()] == refused
        assert (record.overall, record.replayed) == (Overall.PARTIAL, replayed)
    (conclusion,) = world.journal.conclusions
    assert {n: result.outcome for n, result in conclusion.results.items()} == {
        1: Outcome.REFUSED,
        2: Outcome.APPLIED,
    }
    assert list(conclusion.rejected) == [0, 1]
    assert conclusion.rejected[1].before == {}
    assert world.brokers.quotas == {BOB: {KEY: 5.0}}


async def test_what_is_stored_behind_the_barrier_may_be_removed(world: World):
    world.brokers.quotas[ALICE] = {ODD: 1.0}
    record = await world.alter(TAKE_ODD_AWAY)
    assert record.results[0].outcome is Outcome.APPLIED
    assert record.results[0].before == {ODD: 1.0}


async def test_a_check_is_judged_behind_the_barrier_too(world: World):
    await odd_until_the_lock(world)
    with pytest.raises(InvalidRequestError):
        await world.alter(TAKE_ODD_AWAY, validate_only=True)
    assert (world.journal.finals, world.journal.intents) == ([], [])


COMMAND = Alteration(CI, "r2", evidence={"rule": "allow-acl"})


@pytest.mark.parametrize("changes", [True, False])
async def test_a_plan_for_another_cluster_is_not_applied_here(world: World, changes: bool) -> None:
    if not changes:
        world.brokers.quotas[ALICE] = {KEY: 5.0}
    store = FakePlans()
    plans = Plans(store, world.service, world.brokers)
    wanted = PlanRequest((DesiredQuota(ALICE, {KEY: Decimal(5)}),), "team")
    plan = await plans.make(world.actor, PlanCommand(CI, wanted))
    await store.keep(replace(plan, cluster_id="elsewhere"))
    with pytest.raises(NotFoundError):
        await plans.apply(world.actor, COMMAND, plan.plan_id, force=False)
    assert world.log == []
    await store.keep(plan)
    await plans.apply(world.actor, COMMAND, plan.plan_id, force=False)
    assert ("send" in world.log) is changes
    assert world.brokers.quotas == {ALICE: {KEY: 5.0}}


async def test_one_principal_has_no_more_in_progress_than_one_request_may_have(world: World):
    world.brokers.gate = asyncio.Event()

    def users(name: str, number: int) -> list[ClientQuotaAlteration]:
        entities = (ClientQuotaEntity.of({"user": f"{name}-{item}"}) for item in range(number))
        return [setting(entity, "1") for entity in entities]

    first = asyncio.create_task(world.alter(*users("first", 300)))
    await until(lambda: "send" in world.log)
    first.cancel()  # who goes away does not end it
    with pytest.raises(TooManyRequestsError) as refused:
        await world.alter(*users("second", 9_800))
    assert (refused.value.code, refused.value.sent, refused.value.retry) == (
        "rate-limited",
        Sent.NO,
        Retry.SAFE,
    )
    with pytest.raises(TooManyRequestsError):
        await world.alter(*users("second", 9_800), validate_only=True)
    world.brokers.gate.set()
    assert await world.tasks.drain(30) == 0
