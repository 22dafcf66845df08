"""Threads for large requests, the garbage collector, and repeated work."""

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Overall
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    NotSentError,
    WrongClusterError,
)
from app.service.alterations import alter
from app.service.queries import resolve
from app.service.queries.resolve import Identity, ResolveQuery, ResolveQuotas
from app.service.runtime import tasks as runtime_tasks
from app.service.runtime.clock import USUAL, AdaptiveDeadline, Patience, boot_time
from app.service.runtime.readiness import (
    CHECK_TTL_S,
    STANDS_S,
    Check,
    Readiness,
    without_addresses,
)
from app.service.runtime.tasks import (
    MANY,
    Cache,
    Priority,
    merge_calls,
    off_loop,
    pause_gc,
    run_forever,
)
from app.settings import Settings, SettingsError
from tests.testkit.event_loops import until_quiet
from tests.testkit.fake_ports import FakeBrokers, FakeImage, fake_actor
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.service.conftest import World


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


@pytest.mark.parametrize(("number", "on_the_loop"), [(1, True), (2 * MANY, False)])
async def test_a_large_what_if_is_worked_out_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, number: int, on_the_loop: bool
):
    watched = Watched(resolve.judge)
    monkeypatch.setattr(resolve, "judge", watched)
    identities = tuple(Identity(user=f"user-{each}") for each in range(number))
    brokers = FakeBrokers([])
    resolving = ResolveQuotas(FakeImage(brokers))
    query = ResolveQuery(identities, setting(number))
    basis = await resolving.basis(fake_actor(brokers), query)
    assert basis.proposed is not None
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
    monkeypatch.setattr(runtime_tasks, "LASTING", 500)
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


@pytest.mark.parametrize(
    ("error", "lines"),
    [(NotSentError("Postgres is down."), 1), (RuntimeError("nobody has thought of that"), 3)],
)
@in_virtual_time
async def test_repeated_work_goes_on_after_a_failure_and_logs_the_same_refusal_once(
    caplog: pytest.LogCaptureFixture, error: Exception, lines: int
):
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds <= 3:
            raise error

    repeated = run_forever("counting", work, pause_s=600, logger=logging.getLogger("test"))
    with suppress(TimeoutError):
        await asyncio.wait_for(repeated, 4.5 * 600)
    assert rounds == 5
    assert [record.message.partition(":")[0] for record in caplog.records] == (
        ["counting failed"] * lines
    )


@in_virtual_time
async def test_rounds_of_all_clusters_begin_together_and_ask_once():
    asked: list[list[str]] = []

    async def work(names: Sequence[str]) -> Sequence[str]:
        asked.append(sorted(names))
        return [f"of {name}" for name in names]

    calls = merge_calls(work)
    answers: set[str] = set()

    async def cluster(name: str, begins_after_s: float) -> None:
        async def round_of_it() -> None:
            answers.add(await calls.submit(name))

        await asyncio.sleep(begins_after_s)
        logger = logging.getLogger("test")
        await run_forever("a round", round_of_it, pause_s=600, logger=logger, together=True)

    clusters = (cluster(name, number * 7) for number, name in enumerate("abc"))
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*clusters), 3.5 * 600)
    assert [asked[0], *asked[-2:]] == [["a"], ["a", "b", "c"], ["a", "b", "c"]]
    assert answers == {"of a", "of b", "of c"}


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


@in_virtual_time
async def test_who_answers_late_is_ready_once_it_has_answered():
    async def check() -> str | None:
        await asyncio.sleep(USUAL.check_s + 1)
        return None

    readiness = Readiness({"kafka": check}, {})
    assert await readiness.problems(for_write=False) == {"kafka": "No answer within 2 s."}
    await asyncio.sleep(USUAL.check_s)
    for _ in range(20):
        assert not await readiness.problems(for_write=False)
        await asyncio.sleep(CHECK_TTL_S)


async def test_who_is_served_under_another_name_is_not_ready_however_young_its_check_is():
    served: list[str] = []

    async def check() -> None:
        return None

    def refuse() -> None:
        if served:
            raise WrongClusterError(f"It is served as {served[0]!r} already.", found="c")

    readiness = Readiness({"kafka": check}, {}, refusals={"kafka": refuse})
    assert not await readiness.problems(for_write=False)
    served.append("first")
    assert await readiness.problems(for_write=False) == {
        "kafka": "It is served as 'first' already."
    }
    served.clear()
    assert not await readiness.problems(for_write=False)


def answering() -> tuple[asyncio.Event, Readiness]:
    """Return a readiness whose dependency answers while the event is set, as it is at first."""
    answers = asyncio.Event()
    answers.set()

    async def check() -> str | None:
        await answers.wait()
        return None

    return answers, Readiness({"kafka": check}, {})


@in_virtual_time
async def test_who_falls_silent_is_not_ready_until_it_answers_again():
    answers, readiness = answering()
    for _ in range(3):
        assert not await readiness.problems(for_write=False)
        await asyncio.sleep(CHECK_TTL_S)
    answers.clear()
    begun = asyncio.get_running_loop().time()
    while not await readiness.problems(for_write=False):
        await asyncio.sleep(0.5)
    assert asyncio.get_running_loop().time() - begun < STANDS_S
    for _ in range(10):
        assert await readiness.problems(for_write=False) == {"kafka": "No answer within 5 s."}
        await asyncio.sleep(CHECK_TTL_S)
    answers.set()
    await asyncio.sleep(CHECK_TTL_S)
    assert not await readiness.problems(for_write=False)


@in_virtual_time
async def test_an_answer_of_long_ago_stands_for_nothing():
    answers, readiness = answering()
    assert not await readiness.problems(for_write=False)
    answers.clear()
    await asyncio.sleep(STANDS_S)
    assert await readiness.problems(for_write=False) == {"kafka": "No answer within 2 s."}


NEEDED = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@127.0.0.1:1/quotas",
}

OF_THE_DATABASE = ("conclusion_s", "record_s", "entity_wait_s", "statement_s", "lock_s")
AT_LEAST = {"look_up_s": 5.0, "list_s": 10.0, "report_s": 30.0}
OF_BROKERS = ("check_s", "fact_s")
AT_LEAST_OF_BROKERS = {"entities_s": 6.0, "image_s": 10.0, "alter_s": 15.0}


def computed(patience: Patience, *names: str) -> list[float]:
    return [round(getattr(patience, name), 6) for name in names]


def test_without_settings_time_outs_are_the_usual():
    patience = Settings.from_env(NEEDED).patience
    assert patience == USUAL
    assert astuple(patience) == (1.0, 1.4, 5.0)
    assert computed(patience, *OF_THE_DATABASE) == [2.8, 3.4, 2.0, 2.0, 0.466667]
    assert computed(patience, *AT_LEAST) == [5.0, 10.0, 30.0]
    assert computed(patience, *OF_BROKERS, *AT_LEAST_OF_BROKERS) == [2.0, 3.0, 6.0, 10.0, 15.0]


def test_a_deadline_follows_the_slowest_of_a_minute_within_bounds():
    clock = [0.0]
    deadline = AdaptiveDeadline(5.0, lambda: clock[0])
    assert deadline.seconds == 5.0
    for took_s, expected in ((1.0, 5.0), (4.0, 12.0), (2.0, 12.0), (9.0, 20.0)):
        deadline.note(took_s)
        assert deadline.seconds == expected
    clock[0] = 59.0
    deadline.note(3.0)
    assert deadline.seconds == 20.0
    clock[0] = 61.0
    assert deadline.seconds == 9.0
    clock[0] = 120.0
    assert deadline.seconds == 5.0
    assert AdaptiveDeadline(30.0).seconds == 30.0


def test_the_settings_are_milliseconds():
    settings = {
        "QUOTAS_DATABASE_CONNECT_TIMEOUT_MS": "2500",
        "QUOTAS_DATABASE_TIMEOUT_MS": "14000",
        "QUOTAS_KAFKA_REQUEST_TIMEOUT_MS": "20000",
    }
    patience = Settings.from_env({**NEEDED, **settings}).patience
    assert patience == Patience(2.5, 14.0, 20.0)
    assert computed(patience, *OF_THE_DATABASE) == [28, 28.6, 14.6, 14.6, 4.666667]
    assert computed(patience, *AT_LEAST) == [14, 14, 30]
    assert computed(patience, *OF_BROKERS, *AT_LEAST_OF_BROKERS) == [8, 12, 20, 20, 20]


def test_a_time_out_that_cannot_be_meant_is_refused(subtests: pytest.Subtests):
    for timeout_ms in ["0", "-1", "9", "60001", "1.5", "soon"]:
        refusal = pytest.raises(SettingsError, match="QUOTAS_DATABASE_TIMEOUT_MS")
        with subtests.test(timeout_ms=timeout_ms), refusal:
            Settings.from_env({**NEEDED, "QUOTAS_DATABASE_TIMEOUT_MS": timeout_ms})


def test_the_age_of_an_intent_counts_the_sleep_of_the_machine(monkeypatch: pytest.MonkeyPatch):
    clocks = {time.CLOCK_MONOTONIC: 20.0, time.CLOCK_BOOTTIME: 500.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert boot_time() == 500.0


async def test_a_question_that_is_closed_is_a_refusal_to_whoever_waits_for_it():
    async def never() -> None:
        await asyncio.Event().wait()

    cache = Cache(never)
    waiting = [asyncio.create_task(cache.get(0)) for _ in range(2)]
    await until_quiet()
    waiting[1].cancel()
    await cache.close()
    with pytest.raises(NotSentError) as refused:
        await waiting[0]
    assert refused.value.code == "stopping"
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]


@in_virtual_time
async def test_who_defers_waits_until_nobody_goes_first():
    priority, order = Priority(longest_s=30.0), []

    async def second() -> None:
        await priority.defer()
        order.append("second")

    with priority.first(), priority.first() as gone:
        waiting = asyncio.create_task(second())
        gone()
        await asyncio.sleep(1)
        assert not waiting.done()
    asyncio.get_running_loop().call_soon(order.append, "first")
    await waiting
    assert order == ["first", "second"], "what goes first is begun before anybody is woken"
    async with asyncio.timeout(1):
        await priority.defer()


@in_virtual_time
async def test_nobody_defers_for_longer_than_agreed():
    priority = Priority(longest_s=5.0)
    began = asyncio.get_running_loop().time()
    with priority.first():
        await priority.defer()
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)
