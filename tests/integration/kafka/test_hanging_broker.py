"""A broker that is paused, killed, cut off, and back: what was sent, and what became of it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from app.domain.errors import NotSentError, Sent
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from app.service.ports.brokers import Handover
from tests.testkit.fake_kafka.server import ALTER, DESCRIBE
from tests.testkit.kafka import (
    DEADLINE_S,
    admin_of,
    entity,
    eventually,
    pause,
    setting,
    unique,
    values_of,
)
from tests.testkit.patience import PATIENT
from tests.testkit.proxy import TO_BROKER, TO_CLIENT, Direction, kafka_proxy

SHORT_S = 0.5


@pytest.fixture
def paused(broker: LocalKafka) -> Iterator[LocalKafka]:
    """The broker, to be paused by the test; it goes on afterwards."""
    yield broker
    broker.resume()


@pytest.fixture
async def listening(kafka_settings: KafkaSettings) -> AsyncIterator[KafkaClientQuotaAdmin]:
    """An adapter with open connections."""
    async with admin_of(kafka_settings) as admin:
        await admin.describe_client_quotas(ALL_ENTITIES)
        yield admin


async def test_fifty_describes_end_at_their_deadline_although_few_connections_are_allowed(
    paused: LocalKafka, listening: KafkaClientQuotaAdmin
):
    pause(paused)
    results = await asyncio.gather(
        *(listening.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S) for _ in range(50)),
        return_exceptions=True,
    )
    errors = [result for result in results if isinstance(result, NotSentError)]
    assert [error.code for error in errors] == ["cluster-unreachable"] * 50
    assert any("did not answer within 0.5 s" in error.detail for error in errors)
    paused.resume()
    await listening.describe_client_quotas(ALL_ENTITIES)


async def alter(
    admin: KafkaClientQuotaAdmin,
    of: ClientQuotaEntity,
    value: float | str = 1,
    timeout_s: float | None = None,
) -> Handover:
    change = [setting(of, producer_byte_rate=value)]
    return await admin.alter_client_quotas(change, validate_only=False, timeout_s=timeout_s)


async def late_word(answer: Handover) -> Handover:
    """Wait for what comes of listening on."""
    assert answer.late is not None
    return await asyncio.wait_for(answer.late, DEADLINE_S)


async def test_an_alteration_that_was_handed_over_is_unknown_and_its_late_answer_comes(
    paused: LocalKafka, listening: KafkaClientQuotaAdmin
):
    of = entity(user=unique())
    pause(paused)
    answer = await alter(listening, of, 4711, timeout_s=SHORT_S)
    assert answer.verdicts[of].outcome is Outcome.UNKNOWN
    paused.resume()
    final = await late_word(answer)
    assert final.verdicts[of].outcome is Outcome.APPLIED
    assert final.sent_at == answer.sent_at
    assert final.answered_at > answer.answered_at
    assert final.late is None
    await eventually(lambda: values_of(listening, of), {"producer_byte_rate": 4711.0})


async def test_an_answer_that_comes_in_time_is_not_late(listening: KafkaClientQuotaAdmin):
    answer = await alter(listening, entity(user=unique()))
    assert answer.late is None


async def test_a_late_refusal_is_as_definite_as_a_late_success(
    paused: LocalKafka, listening: KafkaClientQuotaAdmin
):
    of = entity(user=unique())
    pause(paused)
    answer = await alter(listening, of, "-1", timeout_s=SHORT_S)
    assert answer.verdicts[of].outcome is Outcome.UNKNOWN
    paused.resume()
    assert (await late_word(answer)).verdicts[of].outcome is Outcome.REFUSED


async def test_whoever_stops_waiting_for_the_late_answer_leaves_it_to_the_others(
    paused: LocalKafka, listening: KafkaClientQuotaAdmin
):
    of = entity(user=unique())
    pause(paused)
    answer = await alter(listening, of, timeout_s=SHORT_S)
    impatient = asyncio.create_task(late_word(answer))
    await asyncio.wait({impatient}, timeout=0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    paused.resume()
    words = await asyncio.gather(late_word(answer), late_word(answer))
    assert [word.verdicts[of].outcome for word in words] == [Outcome.APPLIED] * 2


async def test_a_validation_that_is_not_answered_in_time_is_not_listened_for(
    paused: LocalKafka, listening: KafkaClientQuotaAdmin
):
    of = entity(user=unique())
    pause(paused)
    answer = await listening.alter_client_quotas(
        [setting(of, producer_byte_rate=1)], validate_only=True, timeout_s=SHORT_S
    )
    assert answer.verdicts[of].outcome is Outcome.UNKNOWN
    assert answer.late is None


async def test_a_caller_who_goes_away_does_not_cut_the_alteration(
    paused: LocalKafka, listening: KafkaClientQuotaAdmin
):
    of = entity(user=unique())
    pause(paused)
    waiting = asyncio.create_task(alter(listening, of))
    done, _ = await asyncio.wait({waiting}, timeout=SHORT_S)
    assert not done
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    paused.resume()
    await eventually(lambda: values_of(listening, of), {"producer_byte_rate": 1.0})


async def test_without_a_connection_nothing_was_sent(
    paused: LocalKafka, kafka_settings: KafkaSettings
):
    async with admin_of(kafka_settings) as admin:
        pause(paused)
        with pytest.raises(NotSentError, match="did not answer in time") as caught:
            await alter(admin, entity(user=unique()), timeout_s=SHORT_S)
        assert caught.value.sent is Sent.NO
        with pytest.raises(NotSentError):
            await admin.describe_client_quotas(ALL_ENTITIES, timeout_s=SHORT_S)


async def test_closing_ends_an_alteration_that_hangs_as_unknown(
    paused: LocalKafka, kafka_settings: KafkaSettings
):
    admin = KafkaClientQuotaAdmin(Brokers(kafka_settings, patience=PATIENT))
    await asyncio.gather(*(admin.describe_client_quotas(ALL_ENTITIES) for _ in range(2)))
    waited_for, abandoned = entity(user=unique()), entity(user=unique())
    pause(paused)
    waiting = asyncio.create_task(alter(admin, waited_for))
    answer = await alter(admin, abandoned, timeout_s=SHORT_S)
    await admin.close()
    assert (await waiting).verdicts[waited_for].outcome is Outcome.UNKNOWN
    assert (await late_word(answer)).verdicts[abandoned].outcome is Outcome.UNKNOWN


async def test_when_patience_ends_the_late_word_is_unknown(
    paused: LocalKafka, kafka_settings: KafkaSettings
):
    admin = KafkaClientQuotaAdmin(
        Brokers(kafka_settings, patience=PATIENT), listen_for_s=2 * SHORT_S
    )
    await admin.describe_client_quotas(ALL_ENTITIES)
    of = entity(user=unique())
    pause(paused)
    answer = await alter(admin, of, timeout_s=SHORT_S)
    final = await late_word(answer)
    assert final.verdicts[of].outcome is Outcome.UNKNOWN
    assert final.verdicts[of].error is not None
    assert "No answer came within 1 s" in final.verdicts[of].error.message
    await admin.close()


async def test_a_broker_that_was_killed_is_found_again_when_it_is_back(
    broker: LocalKafka, listening: KafkaClientQuotaAdmin
):
    broker.kill()
    try:
        with pytest.raises(NotSentError):
            await listening.describe_client_quotas(ALL_ENTITIES)
        with pytest.raises(NotSentError):
            await alter(listening, entity(user=unique()))
    finally:
        broker.start()

    async def answers() -> object:
        try:
            return (await listening.describe_client_quotas(ALL_ENTITIES)).cluster_id
        except NotSentError as error:
            return error.detail

    await eventually(answers, broker.cluster_id)


@pytest.mark.parametrize(
    ("direction", "stored"), [(TO_BROKER, {}), (TO_CLIENT, {"producer_byte_rate": 1.0})]
)
async def test_a_request_or_an_answer_that_is_cut_is_unknown_and_only_the_former_changes_nothing(
    broker: LocalKafka, direction: Direction, stored: dict[str, float]
):
    of = entity(user=unique())
    async with (
        kafka_proxy(broker.bootstrap_servers) as proxy,
        admin_of(proxy.bootstrap_servers) as admin,
    ):
        await admin.describe_client_quotas(ALL_ENTITIES, broker_id=1)
        assert proxy.seen(TO_BROKER, DESCRIBE) == 1
        proxy.cut_after(20, direction, ALTER, times=1)
        answer = await alter(admin, of)
        assert (answer.verdicts[of].outcome, answer.late) == (Outcome.UNKNOWN, None)
        await eventually(lambda: values_of(admin, of), stored)
