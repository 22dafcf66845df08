"""Nobody waits for a renewal who may have what is there, and changes of ours are in it at once."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from app.domain.alterations import Quotas
from app.domain.entities import (
    ALL_ENTITIES,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from app.domain.resolution_index import QuotaIndex
from app.service.ports.brokers import Described
from app.service.queries import resolve as module
from app.service.queries.describe import DescribeQuery, DescribeQuotas
from app.service.queries.resolve import (
    BELIEVED_S,
    MEASURED_DESCRIBES,
    RENEWAL_SPACING,
    Identity,
    QuotaImage,
    ResolveQuery,
    ResolveQuotas,
    resolved,
)
from app.service.runtime import tasks as runtime_tasks
from app.service.runtime.clock import utc_now
from tests.testkit.fake_ports import FakeBrokers, fake_actor, no_callback
from tests.testkit.virtual_time import in_virtual_time

ALICE, BOB = (ClientQuotaEntity.of({"user": name}) for name in ("alice", "bob"))
DESCRIBE_S = 0.5


class SlowBroker:
    """Describes what it stores, in ``takes_s``; notes when each describe begins and ends."""

    def __init__(self) -> None:
        self.stored: dict[ClientQuotaEntity, Mapping[str, float]] = {ALICE: rate(1)}
        self.takes_s = DESCRIBE_S
        self.describes: list[tuple[float, float]] = []
        self.lagging: Quotas | None = None
        self.filters: list[ClientQuotaFilter] = []

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter, **_named: Any
    ) -> Described:
        self.filters.append(quota_filter)
        begun_at, as_of = asyncio.get_running_loop().time(), utc_now()
        quotas = dict(self.stored if self.lagging is None else self.lagging)
        await asyncio.sleep(self.takes_s)
        self.describes.append((begun_at, asyncio.get_running_loop().time()))
        return Described(quotas, as_of, "cluster", 1)


def rate(value: float) -> Mapping[str, float]:
    return {"producer_byte_rate": value}


class World:
    """A service that resolves from an image."""

    def __init__(self) -> None:
        self.broker = SlowBroker()
        self.image = QuotaImage(self.broker, no_callback)
        self.resolving = ResolveQuotas(self.image)
        self.actor = fake_actor(cast("FakeBrokers", self.broker), describe_now=self.image.now)

    async def resolve(self, user: str = "alice", max_age_ms: int = 5000) -> float | None:
        query = ResolveQuery((Identity(user),), max_age_ms=max_age_ms)
        basis = await self.resolving.basis(self.actor, query)
        (quota, *_) = resolved(basis.image.index, Identity(user)).quotas.values()
        return quota.value

    def resolve_without_waiting(self, user: str = "alice", max_age_ms: int = 5000) -> float | None:
        """Resolve in one step of the event loop."""
        with pytest.raises(StopIteration) as ended:
            self.resolve(user, max_age_ms).send(None)
        value: float | None = ended.value.value
        return value


@in_virtual_time
async def test_nobody_waits_while_an_image_is_young_enough_though_it_is_renewed() -> None:
    world = World()
    assert await world.resolve() == 1
    world.broker.stored[ALICE] = rate(2)
    seen = []
    for _ in range(600):
        seen.append(world.resolve_without_waiting())
        await asyncio.sleep(0.05)
    assert (seen[0], seen[-1], len(set(seen))) == (1, 2, 2)
    assert len(world.broker.describes) > 5
    await world.image.close()


@in_virtual_time
async def test_renewing_takes_a_fifth_of_the_time_at_most_however_long_a_describe_takes() -> None:
    world = World()
    await world.resolve()
    for takes_s in (0.01, 0.8, 2.0):
        world.broker.takes_s = takes_s
        for _ in range(MEASURED_DESCRIBES):
            await world.resolve(max_age_ms=0)
        world.broker.describes.clear()
        for _ in range(2000):
            world.resolve_without_waiting(max_age_ms=60_000)
            if world.broker.describes:  # a caller that always wants a newer image
                world.image.young(max_age_ms=1)
            await asyncio.sleep(0.05)
        first, last = world.broker.describes[0][0], world.broker.describes[-1][0]
        busy_s = sum(end - begin for begin, end in world.broker.describes[:-1])
        assert busy_s <= (last - first) / RENEWAL_SPACING + 1e-6
    await world.image.close()


@pytest.mark.parametrize("quick_s", [0.4, 2.0])
@in_virtual_time
async def test_nobody_waits_though_describes_take_long(quick_s: float) -> None:
    world = World()
    await world.resolve(max_age_ms=0)
    for _ in range(400):
        world.broker.takes_s = 2.0 if len(world.broker.describes) % 3 else quick_s
        world.resolve_without_waiting()
        await asyncio.sleep(0.1)
    await world.image.close()


@in_virtual_time
async def test_an_index_that_is_being_built_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()
    gate.set()
    original = runtime_tasks.off_loop

    async def gated(*arguments: Any) -> Any:
        await gate.wait()
        return await original(*arguments)

    monkeypatch.setattr(module, "off_loop", gated)
    world = World()
    await world.resolve()
    gate.clear()
    world.broker.stored[ALICE] = rate(2)
    await asyncio.sleep(3)
    for _ in range(20):
        assert world.resolve_without_waiting() == 1
        await asyncio.sleep(0.05)
    assert len(world.broker.describes) == 2
    gate.set()
    await asyncio.sleep(0.05)
    assert world.resolve_without_waiting() == 2
    await world.image.close()


@in_virtual_time
async def test_those_who_wait_share_one_describe() -> None:
    world = World()
    assert set(await asyncio.gather(*(world.resolve() for _ in range(50)))) == {1}
    assert len(world.broker.describes) == 1
    await asyncio.sleep(6)
    await asyncio.gather(*(world.resolve() for _ in range(50)))
    assert len(world.broker.describes) == 2


@in_virtual_time
async def test_a_change_of_ours_is_in_the_next_answer_and_in_all_that_follow() -> None:
    world = World()
    await world.resolve()
    world.broker.lagging = {ALICE: rate(1)}
    await world.image.note({ALICE: {}, BOB: rate(7)})
    for _ in range(int(BELIEVED_S / 0.1) - 1):  # the broker lags
        assert world.resolve_without_waiting() is None
        assert world.resolve_without_waiting("bob") == 7
        await asyncio.sleep(0.1)
    assert len(world.broker.describes) > 1
    world.broker.lagging, world.broker.stored = None, {BOB: rate(7)}
    await asyncio.sleep(10)
    assert await world.resolve() is None
    assert await world.resolve("bob") == 7
    await world.image.close()


@in_virtual_time
async def test_a_change_that_a_broker_still_does_not_show_has_been_overtaken() -> None:
    world = World()
    await world.resolve()
    await world.image.note({ALICE: rate(5)})
    as_of = (await world.image.indexed(max_age_ms=5000)).as_of
    world.broker.stored[ALICE] = rate(6)
    assert await world.resolve(max_age_ms=0) == 6
    disputed = await world.image.indexed(max_age_ms=5000)
    assert disputed.index.values_of(ALICE) == rate(5)
    assert as_of < disputed.as_of < (await world.image.now()).as_of
    await asyncio.sleep(BELIEVED_S)
    assert await world.resolve() == 6
    assert world.resolve_without_waiting() == 6
    await world.image.close()


@in_virtual_time
async def test_changes_that_are_noted_while_an_image_is_renewed_are_in_both() -> None:
    world = World()
    await world.resolve()
    await asyncio.sleep(3)
    assert world.resolve_without_waiting() == 1
    await asyncio.sleep(DESCRIBE_S / 2)
    await asyncio.gather(
        *(
            world.image.note({ClientQuotaEntity.of({"user": f"u{n}"}): rate(n + 1)})
            for n in range(9)
        )
    )
    for _ in range(20):
        assert [world.resolve_without_waiting(f"u{n}") for n in range(9)] == [*range(1, 10)]
        await asyncio.sleep(0.1)
    await world.image.close()


@in_virtual_time
async def test_a_describe_of_everything_shows_a_change_of_ours() -> None:
    world = World()
    await world.image.image(max_age_ms=60_000)
    world.broker.stored[ALICE] = rate(2)
    await world.image.note({ALICE: rate(2)})
    assert world.image.young(max_age_ms=60_000) is None
    assert (await world.image.image(max_age_ms=60_000)).quotas[ALICE] == rate(2)
    assert world.image.young(max_age_ms=60_000) is not None


@in_virtual_time
async def test_one_entity_is_asked_of_a_broker_where_there_is_no_young_image() -> None:
    world = World()
    alice = ClientQuotaFilter((ClientQuotaFilterComponent.of_entity("user", "alice"),), strict=True)
    describing = DescribeQuotas(world.image)
    for asked in ([alice, ALL_ENTITIES], [alice, ALL_ENTITIES], [alice, ALL_ENTITIES, alice]):
        query = DescribeQuery(alice, max_age_ms=0 if len(asked) == 3 else 60_000)
        assert list((await describing.describe(world.actor, query)).entries) == [(ALICE, rate(1))]
        assert world.broker.filters == asked
        await asyncio.sleep(1)


@in_virtual_time
async def test_nothing_is_described_for_changes_that_nobody_reads() -> None:
    world = World()
    for value in range(100):
        await world.image.note({ALICE: rate(value)})
        await asyncio.sleep(0.1)
    assert world.broker.describes == []
    await world.resolve()
    for value in range(100):
        await world.image.note({ALICE: rate(value)})
        await asyncio.sleep(0.1)
    assert len(world.broker.describes) <= 2
    await world.image.close()


@in_virtual_time
async def test_after_a_change_that_nobody_is_sure_of_the_next_answer_is_of_a_new_describe() -> None:
    world = World()
    await world.resolve()
    world.broker.stored[ALICE] = rate(2)
    world.image.forget()
    assert world.image.young(max_age_ms=60_000) is None
    assert await world.resolve() == 2


@in_virtual_time
async def test_more_changes_than_are_worth_laying_over_are_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_ACKNOWLEDGED", 2)
    world = World()
    await world.resolve()
    many = {ClientQuotaEntity.of({"user": f"u{n}"}): rate(1) for n in range(3)}
    world.broker.stored.update(many)
    await world.image.note(many)
    assert await world.resolve("u2") == 1
    assert len(world.broker.describes) == 2


@in_virtual_time
async def test_a_failed_renewal_leaves_the_image_and_is_tried_again() -> None:
    world = World()
    await world.resolve()
    original, failures = world.broker.describe_client_quotas, []

    async def failing(*_arguments: Any, **_named: Any) -> Described:
        await asyncio.sleep(0.1)
        failures.append(asyncio.get_running_loop().time())
        raise LookupError

    world.broker.describe_client_quotas = failing  # type: ignore[method-assign]
    await asyncio.sleep(2.6)
    for _ in range(15):
        assert world.resolve_without_waiting() == 1
        await asyncio.sleep(0.1)
    assert 2 <= len(failures) <= 5
    world.broker.describe_client_quotas = original  # type: ignore[method-assign]
    await asyncio.sleep(3)
    assert await world.resolve() == 1


async def test_an_image_that_is_not_resolved_against_is_not_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.broker.takes_s = 0
    monkeypatch.delattr(QuotaIndex, "of")
    await world.image.image(max_age_ms=0)
    await world.image.image(max_age_ms=0)
