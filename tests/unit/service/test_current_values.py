"""Current values of entities, read one by one or all at once, and the locks of entities."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, NotSentError
from app.domain.filters import ALL_ENTITIES, ClientQuotaFilter
from app.service.alterations.current_values import MOST_AT_ONCE, SLOW_S, CurrentValues
from app.service.alterations.entity_locks import EntitySlots
from app.service.ports.brokers import Described
from app.service.runtime.clock import USUAL
from tests.testkit.virtual_time import in_virtual_time

ALICE = ClientQuotaEntity.of({"user": "alice"})


async def hold_until(slots: EntitySlots, name: str, over: asyncio.Event) -> None:
    async with slots.hold([ALICE], name):
        await over.wait()


async def held(slots: EntitySlots, over: asyncio.Event) -> "asyncio.Task[None]":
    """Let somebody hold a place."""
    holding = asyncio.create_task(hold_until(slots, "first", over))
    await asyncio.sleep(0)
    return holding


@in_virtual_time
async def test_a_place_that_is_held_for_too_long_names_its_holder() -> None:
    slots, over = EntitySlots(), asyncio.Event()
    holding = await held(slots, over)
    with pytest.raises(EntityBusyError, match="first"):
        await hold_until(slots, "second", over)
    over.set()
    await holding


@in_virtual_time
async def test_a_place_that_is_freed_as_the_waiting_ends_is_taken() -> None:
    slots, over = EntitySlots(), asyncio.Event()
    slots._held[ALICE] = "first"
    waiting = asyncio.create_task(hold_until(slots, "second", over))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(USUAL.entity_wait_s, slots._held.clear)
    over.set()
    await waiting
    assert slots._held == {}


async def test_who_is_cancelled_again_at_the_end_still_frees_its_entities() -> None:
    slots, over = EntitySlots(), asyncio.Event()
    holding = await held(slots, over)
    waiting = [asyncio.create_task(hold_until(slots, "waiting", over)) for _ in range(3)]
    await asyncio.sleep(0)
    over.set()
    for _ in range(3):
        holding.cancel()
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)
    assert slots._held == {}


@pytest.mark.parametrize("error", [None, LookupError("a fault")])
async def test_every_entity_of_a_request_is_free_again_when_it_ends(
    error: LookupError | None,
) -> None:
    slots, entities = EntitySlots(), [ClientQuotaEntity.of({"user": name}) for name in "abc"]
    with suppress(LookupError):
        async with slots.hold(entities, "first"):
            assert set(slots._held) == set(entities)
            if error is not None:
                raise error
    for entity in entities:
        async with asyncio.timeout(30), slots.hold([entity], "second"):
            assert slots._held == {entity: "second"}
    assert slots._held == {}


ENTITIES = [ClientQuotaEntity.of({"user": f"user-{number}"}) for number in range(100)]
STORED = {entity: {"request_percentage": float(n)} for n, entity in enumerate(ENTITIES)}


class Broker:
    """Answers when it is told to, after a while; keeps what it was asked."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.asked: list[tuple[ClientQuotaFilter, int | None]] = []
        self.answers = asyncio.Event()

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float = 5.0,
    ) -> Described:
        """Answer with everything that is stored when the question came."""
        assert timeout_s > 0
        self.asked.append((quota_filter, broker_id))
        stored = dict(STORED)
        await asyncio.sleep(self.takes_s)
        await self.answers.wait()
        return Described(stored, datetime.now(UTC), "cluster", broker_id or 0)

    @property
    def asked_for_everything(self) -> int:
        """How often it was asked for everything."""
        return sum(item is ALL_ENTITIES for item, _ in self.asked)


async def until_quiet() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@in_virtual_time
async def test_a_crowd_shares_one_read_of_everything():
    broker = Broker()
    present = CurrentValues(broker)
    reads = [asyncio.create_task(present.read([item], 1)) for item in ENTITIES]
    await until_quiet()
    assert broker.asked_for_everything == 1
    assert len(broker.asked) == MOST_AT_ONCE + 1
    broker.answers.set()
    assert await asyncio.gather(*reads) == [{item: STORED[item]} for item in ENTITIES]
    assert broker.asked_for_everything == 2, "who came during the first one waits for the next"


@in_virtual_time
async def test_few_at_once_are_read_one_by_one_and_again_after_a_crowd():
    broker = Broker()
    present = CurrentValues(broker)
    broker.answers.set()
    await asyncio.gather(*(present.read([item], 1) for item in ENTITIES))
    asked = broker.asked_for_everything
    await asyncio.gather(*(present.read([item], 1) for item in ENTITIES[:MOST_AT_ONCE]))
    assert broker.asked_for_everything == asked


@in_virtual_time
async def test_a_read_is_shared_by_those_who_ask_the_same_broker():
    broker = Broker()
    present = CurrentValues(broker)
    reads = [asyncio.create_task(present.read(ENTITIES, number % 2)) for number in range(6)]
    await until_quiet()
    broker.answers.set()
    assert await asyncio.gather(*reads) == [STORED] * 6
    assert sorted(broker_id or 0 for _, broker_id in broker.asked) == [0, 0, 1]


@in_virtual_time
async def test_where_a_single_read_is_slow_nobody_reads_singly_beside_others():
    broker = Broker(takes_s=2 * SLOW_S)
    present = CurrentValues(broker)
    broker.answers.set()
    assert await present.read([ENTITIES[0]], 1) == {ENTITIES[0]: STORED[ENTITIES[0]]}
    broker.answers.clear()
    broker.asked.clear()
    reads = [asyncio.create_task(present.read([item], 1)) for item in ENTITIES]
    await until_quiet()
    assert len(broker.asked) == 2
    assert broker.asked_for_everything == 1
    await asyncio.sleep(2 * SLOW_S)
    reads[0].cancel()
    await until_quiet()
    reads.append(asyncio.create_task(present.read([ENTITIES[0]], 1)))
    await until_quiet()
    assert len(broker.asked) == 2, "nobody reads singly while others share"
    broker.answers.set()
    read = await asyncio.gather(*reads[1:])
    assert read == [{item: STORED[item]} for item in (*ENTITIES[1:], ENTITIES[0])]
    await present.read([ENTITIES[0]], 1)
    assert broker.asked[-1][0] is not ALL_ENTITIES, "alone nobody shares"


class Brokers(Broker):
    """Broker 1 is gone; what is waited for never shows."""

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float = 5.0,
    ) -> Described:
        """Answer, or be gone."""
        self.asked.append((quota_filter, broker_id))
        if broker_id == 1:
            raise NotSentError("Broker 1 is gone.")
        return Described({}, datetime.now(UTC), "cluster", broker_id or 0)


@in_virtual_time
async def test_where_one_broker_cannot_show_it_nobody_goes_on_asking_the_others():
    brokers = Brokers()
    present = CurrentValues(brokers)
    before = asyncio.all_tasks()
    assert not await present.until_readable(STORED, within_s=30.0, brokers=(1, 2, 3))
    async with asyncio.timeout(30):
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0)
            assert sum(broker_id == 2 for _, broker_id in brokers.asked) < 5


@in_virtual_time
async def test_a_read_that_was_slow_once_is_forgotten_when_all_are_read_in_less_time():
    broker = Broker(takes_s=2 * SLOW_S)
    present = CurrentValues(broker)
    broker.answers.set()
    await present.read([ENTITIES[0]], 1)
    broker.takes_s = 0.0
    await asyncio.gather(*(present.read([item], 1) for item in ENTITIES[:2]))
    assert broker.asked_for_everything == 1, "the second one does not read singly"
    broker.asked.clear()
    await asyncio.gather(*(present.read([item], 1) for item in ENTITIES[:2]))
    assert broker.asked_for_everything == 0
