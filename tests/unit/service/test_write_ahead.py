"""What is recorded, sent and answered where something fails, stops or comes twice; and locks."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from app.domain.alterations import AlterationResult, ClientQuotaAlteration, Outcome, Overall
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    InvalidRequestError,
    NotSentError,
    OutcomeNotRecordedError,
    OutcomeSupersededError,
    QuotaError,
    Retry,
    Sent,
    UnknownOutcomeError,
    UnsupportedVersionError,
)
from app.service.alterations.write_ahead import EntityLocks, send_within_s
from app.service.ports.alterations import (
    Alteration,
    AlterationRecord,
    Conclusion,
    IdempotencyKey,
    Wait,
)
from app.service.ports.brokers import Verdict
from app.service.runtime.clock import USUAL
from tests.testkit.counted_metrics import CountedMetrics
from tests.testkit.event_loops import until
from tests.testkit.fake_ports import Fault, Verdicts, refused
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.conftest import ALICE, BOB, KEY, World, setting

KEYED = IdempotencyKey("k", b"f")


def test_an_intent_of_many_entities_may_be_handed_over_later() -> None:
    single, many = send_within_s(1, USUAL), send_within_s(10_001, USUAL)
    assert many - single == pytest.approx(2 * 10 + 5)
    of_a_plan = send_within_s(10_000, USUAL, tables=3)
    assert of_a_plan - send_within_s(10_000, USUAL) == pytest.approx(10)


@in_virtual_time
async def test_nothing_is_sent_when_the_intent_cannot_be_committed(world: World) -> None:
    world.journal.broken = {"record_intent"}
    with pytest.raises(NotSentError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert world.log == ["record_intent"]
    assert (caught.value.sent, caught.value.retry) == (Sent.NO, Retry.SAFE)


@pytest.mark.parametrize("broken", [set(), {"record_conclusion"}])
@in_virtual_time
async def test_an_answer_that_was_lost_is_unknown_also_where_that_cannot_be_recorded(
    world: World, broken: set[str]
) -> None:
    world.answer(alice=Verdict(Outcome.UNKNOWN))
    world.journal.broken = broken
    with pytest.raises(UnknownOutcomeError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert (caught.value.sent, caught.value.retry) == (Sent.MAYBE, Retry.SAME_KEY_ONLY)
    assert caught.value.alteration_id == world.journal.intents[0].alteration_id
    world.journal.broken = set()
    assert await world.tasks.drain(30) == 0
    result = world.journal.conclusions[0].results[0]
    assert (result.outcome, result.after, result.changed) == (Outcome.UNKNOWN, None, None)


def raising(error: QuotaError) -> Fault:
    def fail(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        raise error

    return fail


@in_virtual_time
async def test_a_verdict_that_cannot_be_recorded_is_reported_and_recorded_later(
    world: World,
) -> None:
    world.journal.broken = {"record_conclusion"}
    with pytest.raises(OutcomeNotRecordedError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert caught.value.sent is Sent.YES
    assert world.brokers.quotas == {ALICE: {KEY: 5.0}}
    assert world.image.noted == [{ALICE: {KEY: 5.0}}]
    world.journal.broken = set()
    assert await world.tasks.drain(30) == 0
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


@in_virtual_time
async def test_an_intent_that_took_too_long_is_not_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.alterations.write_ahead.SEND_BY_S", -10.0)
    with pytest.raises(NotSentError):
        await world.alter(setting(ALICE, "5"))
    assert world.log == ["record_intent", "quorum", "record_conclusion"]


@in_virtual_time
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
async def test_a_stopping_service_takes_no_new_alteration(world: World) -> None:
    await world.tasks.drain(0)
    with pytest.raises(NotSentError):
        await world.alter(setting(ALICE, "5"))
    assert world.log == []


@pytest.mark.parametrize(
    "error", [NotSentError, UnsupportedVersionError, InvalidRequestError, BrokerError]
)
@in_virtual_time
async def test_what_cannot_be_sent_at_all_frees_its_entities(
    world: World, error: type[QuotaError]
) -> None:
    for alterations in ([setting(ALICE, "5")], [setting(ALICE, "5"), setting(BOB, "6")]):
        world.brokers.fault = raising(error("The broker is too old for this request."))
        with pytest.raises(error) as caught:
            await world.alter(*alterations)
        assert caught.value.sent is Sent.NO
        assert caught.value.alteration_id == world.journal.intents[-1].alteration_id
        assert {result.outcome for result in world.journal.conclusions[-1].results.values()} == {
            Outcome.NOT_SENT
        }
    world.brokers.fault = None
    report = await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert report.overall is Overall.APPLIED


@pytest.mark.parametrize(
    ("verdict", "options", "outcome"),
    [
        (refused("INVALID_REQUEST"), {}, Outcome.NOT_APPLIED),
        (Verdict(Outcome.UNKNOWN), {"validate_only": True}, Outcome.NOT_SENT),
    ],
    ids=["held back", "a validation without an answer"],
)
@in_virtual_time
async def test_what_was_only_judged_keeps_its_values(
    world: World, verdict: Verdict, options: dict[str, bool], outcome: Outcome
) -> None:
    world.brokers.quotas = {ALICE: {KEY: 4.0}, BOB: {KEY: 4.0}}
    world.answer(bob=verdict)
    with pytest.raises(QuotaError) as caught:
        await world.alter(setting(ALICE, "5"), setting(BOB, "6"), **options)
    (result,) = (each for each in caught.value.results or () if each.outcome is outcome)
    assert (result.changed, result.before, result.after) == (False, {KEY: 4.0}, {KEY: 4.0})


@in_virtual_time
async def test_a_read_that_fails_under_the_locks_frees_them(world: World) -> None:
    describe = world.brokers.describe_client_quotas

    async def unreadable(*arguments: object, **options: object) -> object:
        raise BrokerError("The broker's answer cannot be read.")

    world.brokers.describe_client_quotas = unreadable  # type: ignore[assignment, method-assign]
    with pytest.raises(BrokerError) as caught:
        await world.alter(setting(ALICE, "5"), expected={0: {KEY: None}})
    assert caught.value.sent is Sent.NO
    assert world.log == ["record_intent", "quorum", "record_conclusion"]
    world.brokers.describe_client_quotas = describe  # type: ignore[method-assign]
    assert (await world.alter(setting(ALICE, "5"))).overall is Overall.APPLIED


@in_virtual_time
async def test_the_record_of_many_entities_may_take_longer(world: World) -> None:
    record = world.journal.record_conclusion

    async def slow(conclusion: Conclusion) -> None:
        await asyncio.sleep(len(conclusion.results) / 1000)
        await record(conclusion)

    world.journal.record_conclusion = slow  # type: ignore[method-assign]
    many = [setting(ClientQuotaEntity.of({"user": f"user-{n}"}), "5") for n in range(5000)]
    report = await world.alter(*many, wait=Wait.NONE)
    assert report.overall is Overall.APPLIED


@in_virtual_time
async def test_an_outcome_is_written_in_the_end_whatever_went_wrong_before(world: World) -> None:
    record = world.journal.record_conclusion
    faults = iter([RuntimeError("nobody has thought of that"), NotSentError("Postgres is down.")])

    async def troubled(conclusion: Conclusion) -> None:
        for fault in faults:
            raise fault
        await record(conclusion)

    world.journal.record_conclusion = troubled  # type: ignore[method-assign]
    report = await world.alter(setting(ALICE, "5"))
    assert report.overall is Overall.APPLIED
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


@in_virtual_time
async def test_a_fault_of_our_own_after_the_sending_is_unknown_and_left_to_recovery(
    world: World,
) -> None:
    def fault(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        if not validate_only:
            raise RuntimeError("nobody has thought of that")
        return {}

    world.brokers.fault = fault
    for alterations in ([setting(ALICE, "5")], [setting(BOB, "5")]):
        with pytest.raises(UnknownOutcomeError) as caught:
            await world.alter(*alterations)
        assert caught.value.alteration_id == world.journal.intents[-1].alteration_id
        conclusion = world.journal.conclusions[-1]
        assert conclusion.results[0].outcome is Outcome.UNKNOWN
        assert [event for _, event, _ in conclusion.events] == ["outcome"]


def _raise_fault(*_: object, **__: object) -> object:
    raise LookupError("nobody has thought of that")


@pytest.mark.parametrize("where", ["quorum", "alter_client_quotas"])
@in_virtual_time
async def test_a_fault_of_our_own_before_the_sending_is_a_fault_and_frees_the_entities(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(world.brokers, where, _raise_fault)
        with pytest.raises(QuotaError) as caught:
            await world.alter(
                setting(ALICE, "5"), setting(BOB, "5"), expected={0: {KEY: None}}, key=KEYED
            )
    error = caught.value
    assert (error.code, error.sent, error.retry) == ("internal-error", Sent.NO, Retry.SAFE)
    assert error.alteration_id == world.journal.intents[0].alteration_id
    outcomes = {result.outcome for result in world.journal.conclusions[0].results.values()}
    assert outcomes == {Outcome.NOT_SENT}
    report = await world.alter(setting(ALICE, "5"), setting(BOB, "5"), key=KEYED)
    assert (report.overall, report.replayed) == (Overall.APPLIED, False)


@in_virtual_time
async def test_a_fault_while_the_intent_is_committed_does_not_hold_its_entities(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = world.journal.record_intent

    async def unreadable(intent: Alteration) -> Alteration:
        await record(intent)
        raise ValueError("the last state cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(world.journal, "record_intent", unreadable)
        with pytest.raises(QuotaError) as caught:
            await world.alter(setting(ALICE, "5"))
    assert (caught.value.code, caught.value.sent) == ("internal-error", Sent.NO)
    await until(lambda: bool(world.journal.conclusions))
    assert world.journal.conclusions[0].results[0].outcome is Outcome.NOT_SENT
    assert (await world.alter(setting(ALICE, "5"))).overall is Overall.APPLIED


@in_virtual_time
async def test_an_answer_that_is_not_understood_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.alterations.results.throttle_time_s", _raise_fault)
    with pytest.raises(UnknownOutcomeError):
        await world.alter(setting(ALICE, "5"))
    assert world.journal.conclusions[0].results[0].outcome is Outcome.UNKNOWN


@in_virtual_time
async def test_an_outcome_that_comes_during_the_stop_is_waited_for_until_it_is_recorded(
    world: World,
) -> None:
    world.brokers.gate = asyncio.Event()
    altering = asyncio.create_task(world.alter(setting(ALICE, "5")))
    await until(lambda: "send" in world.log)
    stopping = asyncio.create_task(world.tasks.drain(30))
    world.journal.broken = {"record_conclusion"}
    world.brokers.gate.set()
    with pytest.raises(OutcomeNotRecordedError):
        await altering
    world.journal.broken = set()
    assert await stopping == 0
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


@in_virtual_time
async def test_a_stop_waits_no_longer_than_it_may(world: World) -> None:
    world.journal.broken = {"record_conclusion"}
    with pytest.raises(OutcomeNotRecordedError):
        await world.alter(setting(ALICE, "5"))
    assert await world.tasks.drain(0.05) == 1
    world.journal.broken = set()
    assert await world.tasks.drain(30) == 0


@in_virtual_time
async def test_a_fault_is_logged_also_where_the_caller_has_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("nobody has thought of that")

    waiting = asyncio.create_task(world.tasks.run(fail()))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await world.tasks.drain(30) == 0
    assert "nobody has thought of that" in caplog.text


@pytest.mark.parametrize("entities", [[ALICE], [ALICE, BOB]])
@in_virtual_time
async def test_a_key_whose_alteration_was_not_sent_runs_it_anew(
    world: World, entities: list[ClientQuotaEntity]
) -> None:
    world.brokers.fault = raising(NotSentError("Connection refused.", code="cluster-unreachable"))
    alterations = [setting(entity, "5") for entity in entities]
    for _ in range(2):
        with pytest.raises(NotSentError) as caught:
            await world.alter(*alterations, key=KEYED)
        assert (caught.value.retry, caught.value.replayed) == (Retry.SAFE, False)
    world.brokers.fault = None
    report = await world.alter(*alterations, key=KEYED)
    assert (report.overall, report.replayed) == (Overall.APPLIED, False)
    assert len({intent.alteration_id for intent in world.journal.intents}) == 3


@in_virtual_time
async def test_a_key_that_was_new_to_two_at_once_is_running_not_busy(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    both = [asyncio.create_task(world.alter(setting(ALICE, "5"), key=KEYED)) for _ in "ab"]
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    error = done.pop().exception()
    assert isinstance(error, EntityBusyError)
    assert (error.code, error.retry) == ("idempotency-key-running", Retry.SAME_KEY_ONLY)
    world.brokers.gate.set()
    reports = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(report, AlterationRecord) for report in reports) == 1
    assert world.log.count("send") == 1


@pytest.mark.parametrize(
    "found",
    [
        [Outcome.SUPERSEDED],
        [Outcome.OBSERVED_OTHER],
        [Outcome.APPLIED, Outcome.SUPERSEDED],
        [Outcome.APPLIED, Outcome.NOT_APPLIED],
        [Outcome.OBSERVED_OTHER, Outcome.NOT_APPLIED],
    ],
)
@in_virtual_time
async def test_a_key_whose_alteration_was_overtaken_is_answered_with_what_was_found(
    world: World, found: list[Outcome]
) -> None:
    entities = [ALICE, BOB][: len(found)]
    alterations = [setting(entity, "5") for entity in entities]
    world.answer(alice=Verdict(Outcome.UNKNOWN), bob=Verdict(Outcome.UNKNOWN))
    options = {"key": KEYED, "all_or_nothing": False}
    with pytest.raises(UnknownOutcomeError) as unknown:
        await world.alter(*alterations, **options)
    results = {n: AlterationResult(entities[n], outcome) for n, outcome in enumerate(found)}
    alteration_id = unknown.value.alteration_id or ""
    await world.journal.record_conclusion(Conclusion(alteration_id, results))
    with pytest.raises(OutcomeSupersededError) as caught:
        await world.alter(*alterations, **options)
    error = caught.value
    assert (error.code, error.replayed, error.retry) == ("outcome-superseded", True, Retry.NEVER)
    assert error.alteration_id == alteration_id
    assert [item.outcome for item in error.results or ()] == found
    assert world.log.count("send") == 1


async def hold_until(locks: EntityLocks, name: str, over: asyncio.Event) -> None:
    async with locks.hold([ALICE], name):
        await over.wait()


async def free(locks: EntityLocks, *entities: ClientQuotaEntity) -> None:
    """Fail unless each of the entities can be taken."""
    for entity in entities:
        async with asyncio.timeout(30), locks.hold([entity], "next"):
            pass


@in_virtual_time
async def test_an_entity_lock_that_is_held_for_too_long_names_its_holder():
    locks, over = EntityLocks(CountedMetrics()), asyncio.Event()
    holding = asyncio.create_task(hold_until(locks, "first", over))
    await asyncio.sleep(0)
    with pytest.raises(EntityBusyError, match="first"):
        await hold_until(locks, "second", over)
    over.set()
    await holding


@in_virtual_time
async def test_an_entity_lock_that_is_freed_as_the_waiting_ends_is_taken():
    locks = EntityLocks(CountedMetrics())
    async with asyncio.TaskGroup() as tasks, locks.hold([ALICE], "first"):
        tasks.create_task(free(locks, ALICE))
        await asyncio.sleep(USUAL.entity_wait_s)


@in_virtual_time
async def test_who_is_cancelled_again_at_the_end_still_frees_its_entities():
    locks, over = EntityLocks(CountedMetrics()), asyncio.Event()
    holding = asyncio.create_task(hold_until(locks, "first", over))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(hold_until(locks, "waiting", over)) for _ in range(3)]
    await asyncio.sleep(0)
    over.set()
    for _ in range(3):
        holding.cancel()
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)
    await free(locks, ALICE)


@pytest.mark.parametrize("error", [None, LookupError("a fault")])
@in_virtual_time
async def test_every_entity_of_a_request_is_held_and_is_free_again_when_it_ends(
    error: LookupError | None,
):
    locks, entities = (
        EntityLocks(CountedMetrics()),
        [ClientQuotaEntity.of({"user": name}) for name in "abc"],
    )
    with suppress(LookupError):
        async with locks.hold(entities, "first"):
            for entity in entities:
                with pytest.raises(EntityBusyError):
                    await free(locks, entity)
            if error is not None:
                raise error
    await free(locks, *entities)
