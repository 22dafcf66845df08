"""What refuses an alteration: a rule, the broker, an expectation, a repeated key, a new cluster."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Op,
    Outcome,
    Overall,
)
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    ExpectationFailedError,
    InvalidRequestError,
    NotFoundError,
    NotSentError,
    OutcomeSupersededError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnknownOutcomeError,
)
from app.domain.plans import PlannedChange
from app.service.alterations.command import AlterationReport, AlterCommand, IdempotencyKey
from app.service.plans import ApplyPlans
from app.service.ports.audit_log import AuditConclusion
from app.service.ports.brokers import EntityVerdict
from app.service.ports.plans import ChangeWithImpact, StoredPlan
from app.service.runtime.clock import utc_now
from tests.testkit.fake_ports import FakePlans, Verdicts, refused
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.alter_world import ALICE, BOB, KEY, World, setting, until


async def test_several_entities_are_validated_by_the_broker_before_any_is_applied(
    world: World,
) -> None:
    await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert world.log == ["record_intent", "quorum", "validate", "send", "record_conclusion"]


async def test_one_refused_entity_holds_all_others_back(world: World) -> None:
    world.answer(bob=refused("INVALID_REQUEST", "the broker's own words"))
    with pytest.raises(InvalidRequestError) as caught:
        await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert world.log == ["record_intent", "quorum", "validate", "record_conclusion"]
    assert [item.outcome for item in caught.value.results or ()] == [
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
    assert world.log == ["record_intent", "quorum", "send", "record_conclusion"]
    assert [result.outcome for result in report.results] == [Outcome.APPLIED, Outcome.REFUSED]
    assert report.overall is Overall.PARTIAL


async def test_without_all_or_nothing_our_own_rules_refuse_only_the_entity_that_breaks_them(
    world: World,
) -> None:
    report = await world.alter(setting(ALICE, "0"), setting(BOB, "6"), all_or_nothing=False)
    assert [result.outcome for result in report.results] == [Outcome.REFUSED, Outcome.APPLIED]
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
    assert world.log == ["quorum", "validate", "record_final"]
    assert report.overall is Overall.VALIDATED
    assert world.brokers.quotas == {}
    assert world.journal.finals[0][0].action == "validate"


async def test_validate_only_that_the_broker_refuses_is_an_error_and_is_kept(world: World) -> None:
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
    outcomes = [result.outcome for result in world.journal.conclusions[0].results.values()]
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


async def test_what_other_tools_stored_can_be_removed(world: World) -> None:
    odd = ClientQuotaEntity.of({"ip": "host.example"})
    world.brokers.quotas[odd] = {"connection_creation_rate": 5.0}
    report = await world.alter(
        ClientQuotaAlteration(odd, (Op("connection_creation_rate", remove=True),))
    )
    assert report.results[0].after == {}


async def test_a_validation_checks_expectations_too(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 5.0}
    with pytest.raises(ExpectationFailedError):
        await world.alter(setting(ALICE, "6"), validate_only=True, expected={0: {KEY: Decimal(4)}})
    assert world.log == ["quorum", "record_final"]
    await world.alter(setting(ALICE, "6"), validate_only=True, expected={0: {KEY: Decimal(5)}})
    assert world.log[2:] == ["quorum", "validate", "record_final"]


def keyed(text: str, fingerprint: bytes = b"f") -> IdempotencyKey:
    return IdempotencyKey(text, fingerprint)


async def test_a_repeated_key_is_answered_from_the_log_and_sends_nothing(world: World) -> None:
    first = await world.alter(setting(ALICE, "5"), key=keyed("k"))
    world.log.clear()
    again = await world.alter(setting(ALICE, "5"), key=keyed("k"))
    assert again.replayed
    assert (again.alteration_id, again.results) == (first.alteration_id, first.results)
    assert "send" not in world.log
    assert "record_intent" not in world.log
    assert (first.readable, again.readable) == (True, None)


@pytest.mark.parametrize("entities", [[ALICE], [ALICE, BOB]])
async def test_a_key_whose_alteration_was_not_sent_runs_it_anew(
    world: World, entities: list[ClientQuotaEntity]
) -> None:
    def unreachable(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        raise NotSentError("Connection refused.", code="cluster-unreachable")

    world.brokers.fault = unreachable
    alterations = [setting(entity, "5") for entity in entities]
    for _ in range(2):
        with pytest.raises(NotSentError) as caught:
            await world.alter(*alterations, key=keyed("k"))
        assert (caught.value.retry, caught.value.replayed) == (Retry.SAFE, False)
    world.brokers.fault = None
    report = await world.alter(*alterations, key=keyed("k"))
    assert (report.overall, report.replayed) == (Overall.APPLIED, False)
    assert len({intent.alteration_id for intent in world.journal.intents}) == 3


async def test_a_key_of_another_request_is_refused(world: World) -> None:
    await world.alter(setting(ALICE, "5"), key=keyed("k"))
    with pytest.raises(InvalidRequestError) as caught:
        await world.alter(setting(ALICE, "6"), key=keyed("k", b"other"))
    assert caught.value.code == "idempotency-key-reused"


async def test_a_key_belongs_to_one_principal(world: World) -> None:
    await world.alter(setting(ALICE, "5"), key=keyed("k"))
    bob = Caller("User:bob", "127.0.0.1", "bearer")
    report = await world.alter(setting(BOB, "6"), key=keyed("k", b"other"), caller=bob)
    assert not report.replayed


async def test_a_key_whose_alteration_is_running_is_answered_as_running(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    first = asyncio.create_task(world.alter(setting(ALICE, "5"), key=keyed("k")))
    await until(lambda: "send" in world.log)
    with pytest.raises(EntityBusyError) as caught:
        await world.alter(setting(ALICE, "5"), key=keyed("k"))
    assert caught.value.code == "idempotency-key-running"
    world.brokers.gate.set()
    await first


@in_virtual_time
async def test_a_key_that_was_new_to_two_at_once_is_running_not_busy(world: World) -> None:
    world.brokers.gate = asyncio.Event()
    both = [asyncio.create_task(world.alter(setting(ALICE, "5"), key=keyed("k"))) for _ in "ab"]
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    error = done.pop().exception()
    assert isinstance(error, EntityBusyError)
    assert (error.code, error.retry) == ("idempotency-key-running", Retry.SAME_KEY_ONLY)
    world.brokers.gate.set()
    reports = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(report, AlterationReport) for report in reports) == 1
    assert world.log.count("send") == 1


async def test_a_key_whose_outcome_is_unknown_is_answered_as_unknown_again(world: World) -> None:
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN))
    for _ in range(2):
        with pytest.raises(UnknownOutcomeError):
            await world.alter(setting(ALICE, "5"), key=keyed("k"))
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
async def test_a_key_whose_alteration_was_overtaken_is_answered_with_what_was_found(
    world: World, found: list[Outcome]
) -> None:
    entities = [ALICE, BOB][: len(found)]
    alterations = [setting(entity, "5") for entity in entities]
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN), bob=EntityVerdict(Outcome.UNKNOWN))
    options = {"key": keyed("k"), "all_or_nothing": False}
    with pytest.raises(UnknownOutcomeError) as unknown:
        await world.alter(*alterations, **options)
    results = {n: AlterationResult(entities[n], outcome) for n, outcome in enumerate(found)}
    alteration_id = unknown.value.alteration_id or ""
    await world.journal.record_conclusion(AuditConclusion(alteration_id, results))
    with pytest.raises(OutcomeSupersededError) as caught:
        await world.alter(*alterations, **options)
    error = caught.value
    assert (error.code, error.replayed, error.retry) == ("outcome-superseded", True, Retry.NEVER)
    assert error.alteration_id == alteration_id
    assert [item.outcome for item in error.results or ()] == found
    assert world.log.count("send") == 1


CI = Caller("User:ci", "127.0.0.1", "bearer")
COMMAND = AlterCommand(CI, {"rule": "allow-acl"}, "r2", ())


@pytest.mark.parametrize("changes", [True, False])
async def test_a_plan_for_another_cluster_is_not_applied_here(world: World, changes: bool) -> None:
    change = PlannedChange(setting(ALICE, "5"), {}, {KEY: 5.0}, {KEY: None})
    plan = StoredPlan(
        plan_id="p1",
        cluster_id="elsewhere",
        author="User:ci",
        owner="team",
        prune=False,
        adopt=False,
        scope=(),
        created_at=utc_now(),
        expires_at=utc_now() + timedelta(hours=1),
        base="b",
        changes=(ChangeWithImpact(change, {}),) if changes else (),
        conflicts=(),
        kept=(),
        rests_on={ALICE: {KEY: None}},
    )
    plans = FakePlans()
    await plans.keep(plan)
    applying = ApplyPlans(plans, world.service, world.brokers)
    with pytest.raises(NotFoundError):
        await applying.apply(COMMAND, "p1", force=False)
    assert world.log == []
    await plans.keep(replace(plan, cluster_id="fake"))
    await applying.apply(COMMAND, "p1", force=False)
    assert world.brokers.quotas == ({ALICE: {KEY: 5.0}} if changes else {})


async def test_one_principal_has_no_more_in_progress_than_one_request_may_have(world: World):
    world.brokers.gate = asyncio.Event()

    def users(name: str, number: int) -> list[ClientQuotaAlteration]:
        entities = (ClientQuotaEntity.of({"user": f"{name}-{one}"}) for one in range(number))
        return [setting(one, "1") for one in entities]

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
