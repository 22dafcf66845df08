"""Current values of entities, read one by one or all at once."""

import asyncio
from datetime import UTC, datetime

import pytest

from app.domain.alterations import Quotas
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import NotSentError
from app.service.alterations.barrier import MAX_SINGLE_READS, Barrier, CurrentValues
from app.service.ports.brokers import BarrierUnavailableError, Described, QuorumState
from tests.testkit.virtual_time import in_virtual_time

ALICE = ClientQuotaEntity.of({"user": "alice"})


ENTITIES = [ClientQuotaEntity.of({"user": f"user-{number}"}) for number in range(100)]
STORED = {entity: {"request_percentage": float(n)} for n, entity in enumerate(ENTITIES)}


class Broker:
    """Answers when a test lets it; records what it was asked, and of which broker."""

    def __init__(self, stored: Quotas = STORED, *, gone: int = -1, refused: str = "") -> None:
        self.asked: list[tuple[ClientQuotaFilter, int | None]] = []
        self.answers = asyncio.Event()
        self._stored, self._gone, self._refused = stored, gone, refused

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter, *, broker_id: int | None = None, timeout_s: float = 5
    ) -> Described:
        """Answer with everything that is stored, unless that broker is gone or a name refused."""
        assert timeout_s > 0
        self.asked.append((quota_filter, broker_id))
        await self.answers.wait()
        names = [component.match for component in quota_filter.components]
        if broker_id == self._gone or self._refused in names:
            raise NotSentError("no")
        return Described(self._stored, datetime.now(UTC), "cluster", broker_id or 0)

    @property
    def asked_for_everything(self) -> int:
        """How often it was asked for everything."""
        return sum(item is ALL_ENTITIES for item, _ in self.asked)


@in_virtual_time
async def test_few_are_read_one_by_one_and_more_by_one_read_of_everything():
    broker = Broker()
    present = CurrentValues(broker)
    broker.answers.set()
    few = dict(list(STORED.items())[:MAX_SINGLE_READS])
    assert await present.read(list(few), 1) == few
    assert (len(broker.asked), broker.asked_for_everything) == (MAX_SINGLE_READS, 0)
    assert MAX_SINGLE_READS >= 5
    await present.read(ENTITIES[: MAX_SINGLE_READS + 1], 1)
    assert (len(broker.asked), broker.asked_for_everything) == (MAX_SINGLE_READS + 1, 1)


@in_virtual_time
async def test_where_one_broker_cannot_show_it_nobody_goes_on_asking_the_others():
    brokers = Broker({}, gone=1)
    brokers.answers.set()
    present = CurrentValues(brokers)
    before = asyncio.all_tasks()
    assert not await present.until_readable(STORED, within_s=30.0, brokers=(1, 2, 3))
    async with asyncio.timeout(30):
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0)
            assert sum(broker_id == 2 for _, broker_id in brokers.asked) < 5


class Quorum:
    """A metadata log: what is committed of it, and what the broker has published."""

    def __init__(self, committed: int = 1, published: int = 1) -> None:
        self.committed, self.published = committed, published
        self.permitted = True

    async def quorum(
        self, *, broker_id: int | None = None, timeout_s: float | None = None
    ) -> QuorumState:
        """Answer at once; a broker publishes what is committed before it is asked again."""
        if not self.permitted:
            raise BarrierUnavailableError
        return QuorumState(1, self.committed + 1)

    async def published_offset(self, *, broker_id: int | None, timeout_s: float) -> int:
        published, self.published = self.published, self.committed
        return published


@in_virtual_time
async def test_a_broker_that_falls_silent_behind_the_barrier_has_no_longer_deadline_next_time():
    barrier = Barrier(Quorum(), CurrentValues(Broker()))
    least_s = barrier.deadline.seconds
    with pytest.raises(NotSentError):
        await barrier.read(ENTITIES[:1], broker_id=1)
    assert barrier.deadline.seconds == least_s


@in_virtual_time
async def test_what_was_seen_ahead_of_a_barrier_holds_where_nothing_was_committed_since():
    broker, quorum = Broker(), Quorum()
    broker.answers.set()
    barrier = Barrier(quorum, CurrentValues(broker))
    look = barrier.look(ENTITIES[:1], broker_id=1)
    await look.seeing
    assert len(broker.asked) == 1
    read = await barrier.read_behind(look)
    assert (read.values, read.quorum) == ({ENTITIES[0]: STORED[ENTITIES[0]]}, QuorumState(1, 2))
    assert len(broker.asked) == 1


@in_virtual_time
async def test_what_was_seen_before_something_was_committed_is_read_again():
    """And the next look sees nothing, as with a broker that lags: it would be read twice again."""
    stored = {ALICE: {"request_percentage": 1.0}}
    broker, quorum = Broker(stored), Quorum()
    broker.answers.set()
    barrier = Barrier(quorum, CurrentValues(broker))
    look = barrier.look([ALICE], broker_id=1)
    await look.seeing
    stored[ALICE] = {"request_percentage": 2.0}
    quorum.committed += 1
    assert (await barrier.read_behind(look)).values == {ALICE: {"request_percentage": 2.0}}
    assert len(broker.asked) == 2
    quorum.committed += 1
    assert (await barrier.read([ALICE], broker_id=1)).values == stored
    assert len(broker.asked) == 3, "the broker lagged: who looks ahead would have read in vain"
    assert (await barrier.read([ALICE], broker_id=1)).values == stored
    assert len(broker.asked) == 4
    look = barrier.look([ALICE], broker_id=1)
    assert (await look.seeing) is not None, "it was found to keep up"


@in_virtual_time
async def test_nobody_looks_ahead_of_a_barrier_that_cannot_be_set():
    broker, quorum = Broker(), Quorum()
    broker.answers.set()
    quorum.permitted = False
    barrier = Barrier(quorum, CurrentValues(broker))
    for asked in (2, 3):
        assert (await barrier.read(ENTITIES[:1], broker_id=1)).quorum is None
        assert len(broker.asked) <= asked
    assert await barrier.look(ENTITIES[:1], broker_id=1).seeing is None
