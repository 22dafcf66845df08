"""Threads for large requests, the garbage collector, and partitions made ahead of time."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Overall
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import InvalidRequestError, NotSentError, TooManyRequestsError
from app.service.alterations import alter
from app.service.queries import resolve
from app.service.queries.resolve import Identity, ResolveQuery, ResolveQuotas
from app.service.runtime import offload
from app.service.runtime.offload import MANY, LargeRequests, off_loop, pause_gc
from app.service.runtime.readiness import Check, Readiness, without_addresses
from app.service.runtime.tasks import INTERVAL_S, PartitionKeeper
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers, FakeImage
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.alter_world import World


class NoCallbacks:
    async def custom_callback(self) -> str | None:
        return None


class Watched:
    """A function that remembers whether it ran in the thread of the event loop."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.on_the_loop: list[bool] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.on_the_loop.append(threading.current_thread() is threading.main_thread())
        return self.function(*args, **kwargs)


def setting(number: int, value: int = 5) -> tuple[ClientQuotaAlteration, ...]:
    ops = (Op("producer_byte_rate", Decimal(value)),)
    return tuple(
        ClientQuotaAlteration(ClientQuotaEntity.of({"user": f"user-{each}"}), ops)
        for each in range(number)
    )


async def test_only_work_on_many_items_leaves_the_event_loop():
    watched = Watched(len)
    assert [await off_loop(number, watched, "abc") for number in (0, MANY - 1, MANY)] == [3, 3, 3]
    assert watched.on_the_loop == [True, True, False]


async def test_an_error_comes_back_from_the_thread():
    with pytest.raises(ZeroDivisionError):
        await off_loop(MANY, divmod, 1, 0)


@pytest.mark.parametrize(("number", "on_the_loop"), [(1, True), (2 * MANY, False)])
async def test_a_large_alteration_is_judged_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, number: int, on_the_loop: bool
):
    watched = Watched(alter.judge)
    monkeypatch.setattr(alter, "judge", watched)
    world = World()
    report = await world.alter(*setting(number))
    assert (report.overall, len(report.results)) == (Overall.APPLIED, number)
    assert len(world.brokers.quotas) == number
    assert watched.on_the_loop == [on_the_loop]


async def test_a_large_alteration_is_refused_with_all_its_violations():
    with pytest.raises(InvalidRequestError) as caught:
        await World().alter(*setting(2 * MANY, value=-1))
    assert len(caught.value.violations) == 2 * MANY


@pytest.mark.parametrize(("number", "on_the_loop"), [(1, True), (2 * MANY, False)])
async def test_a_large_what_if_is_worked_out_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, number: int, on_the_loop: bool
):
    watched = Watched(resolve.judge)
    monkeypatch.setattr(resolve, "judge", watched)
    identities = tuple(Identity(user=f"user-{each}") for each in range(number))
    resolving = ResolveQuotas(FakeImage(FakeBrokers([])), NoCallbacks())
    answer = await resolving.resolve(ResolveQuery(identities, setting(number)))
    assert answer.proposed is not None
    assert [len(answer.resolutions), len(answer.proposed)] == [number, number]
    assert watched.on_the_loop == [on_the_loop]


class Thing:
    """Something that the collector looks at."""


@pytest.fixture
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_nothing_is_collected_in_the_block_and_all_is_as_before_after_the_outermost():
    with pause_gc():
        with pause_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_a_block_that_fails_leaves_the_collector_as_it_was():
    with pytest.raises(KeyError), pause_gc():
        raise KeyError
    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_what_lasts_is_not_looked_at_again_and_is_freed_when_nobody_refers_to_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(offload, "LASTING", 500)
    with pause_gc():
        built = [Thing() for _ in range(1000)]
    assert gc.get_freeze_count() >= 1000
    last = weakref.ref(built[-1])
    built.clear()
    assert last() is None


@pytest.mark.usefixtures("thawed")
def test_a_block_that_leaves_little_behind_is_looked_at_as_usual():
    with pause_gc():
        built = [Thing() for _ in range(1000)]
    assert gc.get_freeze_count() == 0
    assert len(built) == 1000


class Log:
    """The number of months ahead; ``broken`` tells what cannot be done."""

    def __init__(self) -> None:
        self.months = 0
        self.tried = 0
        self.broken: set[str] = set()
        self.fault: Exception = NotSentError("Postgres is down.", code="audit-log-unavailable")

    async def ensure(self) -> int:
        self.tried += 1
        self._do("ensure")
        made, self.months = 3 - self.months, 3
        return made

    async def ahead(self) -> int:
        self._do("ahead")
        return self.months

    def _do(self, name: str) -> None:
        if name in self.broken:
            raise self.fault


async def kept(log: Log, metrics: CountedMetrics, times: int) -> None:
    keeper = asyncio.create_task(PartitionKeeper(log.ensure, log.ahead, metrics).run())
    async with asyncio.timeout(10 * INTERVAL_S):
        while log.tried < times:
            await asyncio.sleep(30)
    keeper.cancel()
    await asyncio.wait({keeper})


@in_virtual_time
async def test_what_is_missing_is_made_and_told():
    log, metrics = Log(), CountedMetrics()
    await kept(log, metrics, 3)
    assert (log.months, metrics.counts["months ahead"]) == (3, 3)


@in_virtual_time
async def test_how_far_partitions_reach_is_told_when_none_can_be_made():
    log, metrics = Log(), CountedMetrics()
    log.broken, log.months = {"ensure"}, -1
    await kept(log, metrics, 2)
    assert metrics.counts["months ahead"] == -1


@in_virtual_time
async def test_it_goes_on_when_nothing_can_be_counted(caplog: pytest.LogCaptureFixture):
    log, metrics = Log(), CountedMetrics()
    log.broken = {"ahead"}
    await kept(log, metrics, 3)
    assert "months ahead" not in metrics.counts
    assert "were not counted: Postgres is down." in caplog.text


@pytest.mark.parametrize("broken", ["ensure", "ahead"])
@in_virtual_time
async def test_it_goes_on_after_a_fault_of_our_own(caplog: pytest.LogCaptureFixture, broken: str):
    log, metrics = Log(), CountedMetrics()
    log.broken, log.fault = {broken}, RuntimeError("nobody has thought of that")
    await kept(log, metrics, 3)
    assert "nobody has thought of that" in caplog.text


async def test_readiness_says_how_many_brokers_do_not_respond_and_not_where_they_are():
    def check_of(error: Exception) -> Check:
        async def check() -> str | None:
            raise error

        return without_addresses(check, lambda: 3)

    away = NotSentError("The broker kafka-7.internal:9092 is away.", code="cluster-unreachable")
    acls = NotSentError(f"The ACLs are not known. {away.detail}", code="acl-source-unreachable")
    acls.__cause__ = away
    missing = NotSentError("The ACLs are not known: give it DESCRIBE.")
    readiness = Readiness(
        {"kafka": check_of(away), "acls": check_of(acls), "account": check_of(missing)}, {}
    )
    assert await readiness.problems(for_write=False) == {
        "kafka": "None of the brokers responds (3 tried); the log says why.",
        "acls": "None of the brokers responds (3 tried); the log says why.",
        "account": missing.detail,
    }


def test_a_principal_has_as_many_items_in_progress_as_one_request_may_have():
    large = LargeRequests()

    def is_refused(principal: str, number: int) -> bool:
        try:
            with large.work(principal, number):
                return False
        except TooManyRequestsError:
            return True

    with large.work("alice", 300):
        assert [is_refused("alice", 9_701), is_refused("alice", 9_700)] == [True, False]
        assert not is_refused("bob", 10_000)
        with large.work("alice", 9_700), large.work("alice", MANY - 1):
            assert [is_refused("alice", MANY), is_refused("alice", MANY - 1)] == [True, False]
        assert not is_refused("alice", 9_700)
    assert not is_refused("alice", 20_000)
