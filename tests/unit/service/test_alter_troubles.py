"""What an alteration answers, and what it holds, where something fails that seldom does."""

from collections.abc import Sequence

import pytest

from app.domain.alterations import ClientQuotaAlteration, Outcome, Overall
from app.domain.errors import (
    BrokerError,
    InvalidRequestError,
    NotSentError,
    QuotaError,
    Retry,
    Sent,
    UnknownOutcomeError,
    UnsupportedVersionError,
)
from app.service.audit_records import AuditConclusion
from app.service.cluster_ports import EntityVerdict
from tests.testkit.fake_ports import Verdicts
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.alter_world import ALICE, BOB, KEY, World, setting


@in_virtual_time
async def test_an_answer_that_was_lost_is_unknown_also_where_that_cannot_be_recorded(
    world: World,
) -> None:
    world.answer(alice=EntityVerdict(Outcome.UNKNOWN))
    world.journal.broken = {"record_conclusion"}
    with pytest.raises(UnknownOutcomeError) as caught:
        await world.alter(setting(ALICE, "5"))
    assert (caught.value.sent, caught.value.retry) == (Sent.MAYBE, Retry.SAME_KEY_ONLY)
    assert caught.value.alteration_id == world.journal.intents[0].alteration_id
    world.journal.broken = set()
    assert await world.tasks.drain(30) == 0
    assert world.journal.conclusions[0].results[0].outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("error", [UnsupportedVersionError, InvalidRequestError, BrokerError])
async def test_what_cannot_be_sent_at_all_frees_its_entities(
    world: World, error: type[QuotaError]
) -> None:
    def cannot(_: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        raise error("The broker is too old, or cannot be told this.")

    for alterations in ([setting(ALICE, "5")], [setting(ALICE, "5"), setting(BOB, "6")]):
        world.brokers.fault = cannot
        with pytest.raises(error) as caught:
            await world.alter(*alterations)
        assert caught.value.sent is Sent.NO
        assert caught.value.alteration_id == world.journal.intents[-1].alteration_id
        assert {one.outcome for one in world.journal.conclusions[-1].results.values()} == {
            Outcome.NOT_SENT
        }
    world.brokers.fault = None
    report = await world.alter(setting(ALICE, "5"), setting(BOB, "6"))
    assert report.overall is Overall.APPLIED


async def test_a_read_that_fails_under_the_slots_frees_them(world: World) -> None:
    describe = world.brokers.describe_client_quotas
    answers = iter([describe])

    async def unreadable(*given: object, **options: object) -> object:
        for healthy in answers:
            return await healthy(*given, **options)  # type: ignore[arg-type]
        raise BrokerError("The broker's answer cannot be read.")

    world.brokers.describe_client_quotas = unreadable  # type: ignore[assignment, method-assign]
    with pytest.raises(BrokerError) as caught:
        await world.alter(setting(ALICE, "5"), expected={0: {KEY: None}})
    assert caught.value.sent is Sent.NO
    assert world.log == ["record_intent", "quorum", "record_conclusion"]
    world.brokers.describe_client_quotas = describe  # type: ignore[method-assign]
    assert (await world.alter(setting(ALICE, "5"))).overall is Overall.APPLIED


@in_virtual_time
async def test_an_outcome_is_written_in_the_end_whatever_went_wrong_before(world: World) -> None:
    record = world.journal.record_conclusion
    faults = iter([RuntimeError("nobody has thought of that"), NotSentError("Postgres is down.")])

    async def troubled(conclusion: AuditConclusion) -> None:
        for fault in faults:
            raise fault
        await record(conclusion)

    world.journal.record_conclusion = troubled  # type: ignore[method-assign]
    report = await world.alter(setting(ALICE, "5"))
    assert report.overall is Overall.APPLIED
    assert world.journal.conclusions[0].results[0].outcome is Outcome.APPLIED


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


async def test_what_was_applied_is_told_whatever_goes_wrong_with_the_wait(world: World) -> None:
    describe = world.brokers.describe_client_quotas

    async def fails_when_sent(*given: object, **options: object) -> object:
        if "send" in world.log:
            raise RuntimeError("nobody has thought of that")
        return await describe(*given, **options)  # type: ignore[arg-type]

    world.brokers.describe_client_quotas = fails_when_sent  # type: ignore[assignment, method-assign]
    report = await world.alter(setting(ALICE, "5"))
    assert (report.overall, report.readable) == (Overall.APPLIED, False)
