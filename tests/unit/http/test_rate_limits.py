"""Rate limits and limits of login attempts: so many a second, and nobody pays for another."""

import asyncio
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.errors import LoginFailedError, RateLimitedError
from app.http.problems import problem_headers
from app.http.rate_limits import (
    BURST_S,
    MAX_BUCKETS,
    MOST_FAILURES,
    MOST_OF_ADDRESS,
    MOST_PENDING,
    MOST_REMEMBERED,
    WITHIN_S,
    Limited,
    Limits,
    LoginAttempts,
    RateLimits,
    TokenBuckets,
    Turns,
)
from tests.testkit.event_loops import until
from tests.testkit.virtual_time import ManualClock
from tests.unit.http.fake_service import FakeService

LIMITS = Limits(reads_per_s=10, alterations_per_s=2, requests_at_once=3, failures_per_s=5)


class Counted(RateLimits):
    """Rate limits with a clock of their own and a list of what was refused."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.clock = ManualClock(500.0)
        self.refused: list[str] = []
        super().__init__(limits, self.refused.append, now=self.clock)


@pytest.fixture
def limits() -> Counted:
    return Counted()


def passing(request: Callable[[], object], times: int) -> int:
    """Return how many of so many requests pass."""
    passed = 0
    for _ in range(times):
        try:
            request()
        except RateLimitedError:
            continue
        passed += 1
    return passed


def test_twice_the_rate_passes_at_once_and_then_the_rate(limits: Counted):
    def read() -> None:
        limits.admit("User:alice", Limited.READS)

    assert passing(read, 100) == 20
    for _ in range(5):
        limits.clock.now += 1.0
        assert passing(read, 100) == 10
    limits.clock.now += 3600.0
    assert passing(read, 100) == 20
    assert limits.refused == ["reads"] * (80 + 5 * 90 + 80)


@given(rate=st.floats(0.1, 5000), pauses=st.lists(st.floats(0, 3), max_size=50))
def test_the_next_token_comes_exactly_when_the_caller_may_come_back(
    rate: float, pauses: list[float]
):
    now = 0.0
    buckets = TokenBuckets(rate, BURST_S)
    for pause in pauses:
        now += pause
        while wait_s := buckets.take("a", now):
            assert buckets.take("a", now + wait_s * 0.99) > 0
            now += wait_s + 1e-9
        assert wait_s == 0.0


@given(rate=st.floats(0.1, 1000), steps=st.lists(st.floats(0, 0.5), max_size=200))
def test_no_more_than_the_burst_and_the_rate_ever_pass(rate: float, steps: list[float]):
    now, passed = 0.0, 0
    buckets = TokenBuckets(rate, BURST_S)
    for step in steps:
        now += step
        passed += buckets.take("a", now) == 0.0
    assert passed <= max(1.0, BURST_S * rate) + now * rate + 1e-6


def test_the_header_says_when_to_come_back_and_is_right_within_a_second():
    limits = Counted(replace(LIMITS, reads_per_s=0.2))
    limits.admit("User:alice", Limited.READS)
    with pytest.raises(RateLimitedError) as raised:
        limits.admit("User:alice", Limited.READS)
    retry_after = int(problem_headers(raised.value)["Retry-After"])
    assert 5 <= retry_after <= 6
    limits.clock.now += retry_after
    limits.admit("User:alice", Limited.READS)


def test_zero_is_no_limit():
    limits = Counted(Limits(0, 0, 0, 0))
    for kind in (Limited.READS, Limited.ALTERATIONS):
        assert passing(lambda kind=kind: limits.admit("User:alice", kind), 5000) == 5000
    assert passing(lambda: limits.admit_failure("10.0.0.1"), 5000) == 5000
    assert passing(lambda: limits.begin("User:alice"), 5000) == 5000


def test_who_has_no_request_takes_no_memory(limits: Counted):
    for number in range(1000):
        limits.begin(f"User:{number}")()
    assert not limits._working


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "not an address", False),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one_address(
    limits: Counted, left: str, right: str, same: bool
):
    assert passing(lambda: limits.admit_failure(left), 200) == 100
    assert passing(lambda: limits.admit_failure(right), 200) == (0 if same else 100)


def test_a_bounded_number_of_names_is_remembered_the_oldest_forgotten_first():
    buckets = TokenBuckets(1.0, 2.0)
    others = (str(number) for number in range(MAX_BUCKETS - 2))
    for name in ("a", "b", *others, "a"):
        assert buckets.take(name, 0.0) == 0.0
    assert buckets.take("another", 0.0) == 0.0
    assert len(buckets) == MAX_BUCKETS
    assert buckets.take("a", 0.0) > 0.0
    assert buckets.take("b", 0.0) == 0.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(500.0)


@pytest.fixture
def attempts(clock: ManualClock) -> LoginAttempts:
    return LoginAttempts(now=clock)


def fail(attempts: LoginAttempts, user: str = "alice", address: str = "10.0.0.1") -> None:
    with suppress(LoginFailedError), attempts.attempt(user, address):
        raise LoginFailedError("No.")


def begin(attempts: LoginAttempts, user: str = "alice", address: str = "10.0.0.1") -> ExitStack:
    """Begin a login that is pending until the stack is closed."""
    stack = ExitStack()
    stack.enter_context(attempts.attempt(user, address))
    return stack


def test_the_sixth_failure_within_a_minute_is_too_many(
    attempts: LoginAttempts, clock: ManualClock
) -> None:
    for _ in range(MOST_FAILURES):
        fail(attempts)
        clock.now += 1
    with pytest.raises(RateLimitedError) as caught:
        fail(attempts)
    assert caught.value.retry_after_s == WITHIN_S - MOST_FAILURES
    clock.now += math.ceil(caught.value.retry_after_s or 0)
    fail(attempts)
    with pytest.raises(RateLimitedError):
        fail(attempts)


def test_refused_attempts_do_not_make_the_waiting_longer(
    attempts: LoginAttempts, clock: ManualClock
) -> None:
    for _ in range(MOST_FAILURES):
        fail(attempts)
    for _ in range(1000):
        with pytest.raises(RateLimitedError):
            fail(attempts)
    clock.now += WITHIN_S
    fail(attempts)


def test_other_users_and_other_addresses_have_their_own_count(attempts: LoginAttempts) -> None:
    for _ in range(MOST_FAILURES):
        fail(attempts)
    fail(attempts, "alice", "10.0.0.2")
    fail(attempts, "bob", "10.0.0.1")


def test_an_ipv6_network_is_one_address(attempts: LoginAttempts) -> None:
    for number in range(MOST_FAILURES):
        fail(attempts, "alice", f"2001:db8::{number}")
    with pytest.raises(RateLimitedError):
        fail(attempts, "alice", "2001:db8::ffff")


def test_successes_are_not_counted(attempts: LoginAttempts) -> None:
    for _ in range(100):
        with attempts.attempt("alice", "10.0.0.1"):
            pass


def test_pending_attempts_count_as_failed(attempts: LoginAttempts) -> None:
    pending = [begin(attempts) for _ in range(MOST_FAILURES)]
    with pytest.raises(RateLimitedError):
        fail(attempts)
    pending[2].close()
    fail(attempts)


def test_a_refusal_is_counted() -> None:
    refusals: list[None] = []
    attempts = LoginAttempts(lambda: refusals.append(None))
    for _ in range(MOST_FAILURES):
        fail(attempts)
    with pytest.raises(RateLimitedError):
        fail(attempts)
    assert len(refusals) == 1


def test_no_counter_is_forgotten_before_its_time(
    attempts: LoginAttempts, clock: ManualClock
) -> None:
    for _ in range(MOST_FAILURES):
        fail(attempts)
    for number in range(1, MOST_REMEMBERED):
        fail(attempts, f"user-{number}", f"10.1.{number // 250}.{number % 250}")
    assert len(attempts) == MOST_REMEMBERED
    for user, address in (("alice", "10.0.0.1"), ("new", "10.0.0.2"), ("new", "10.1.0.1")):
        with pytest.raises(RateLimitedError):
            fail(attempts, user, address)
    begin(attempts, "user-1", "10.1.0.1").close()
    clock.now += WITHIN_S
    fail(attempts, "new", "10.0.0.2")
    assert len(attempts) == 1


def test_long_names_take_no_more_memory_than_short_names(attempts: LoginAttempts) -> None:
    tracemalloc.start()
    try:
        for number in range(2_500):
            fail(attempts, f"{number}-{'x' * 23_000}", f"10.1.{number // 250}.{number % 250}")
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 4_000_000


def test_an_address_may_fail_for_so_many_users_and_no_more(
    attempts: LoginAttempts, clock: ManualClock
) -> None:
    for number in range(MOST_OF_ADDRESS):
        fail(attempts, f"user-{number}")
    with pytest.raises(RateLimitedError) as caught:
        fail(attempts, "another")
    assert caught.value.retry_after_s == WITHIN_S
    fail(attempts, "another", "10.0.0.2")
    clock.now += WITHIN_S
    fail(attempts, "another")


def test_an_address_has_a_bounded_number_of_pending_logins(attempts: LoginAttempts) -> None:
    pending = [begin(attempts, f"user-{number}") for number in range(MOST_PENDING)]
    with pytest.raises(RateLimitedError):
        fail(attempts, "another")
    fail(attempts, "another", "10.0.0.2")
    with suppress(LoginFailedError), pending.pop():
        raise LoginFailedError("No.")
    fail(attempts, "another")


async def test_a_name_has_so_many_turns_and_takes_none_from_another():
    turns, gate = Turns(2), asyncio.Event()
    running: Counter[str] = Counter()

    async def work(name: str) -> None:
        async with turns.of(name):
            running[name] += 1
            await gate.wait()
            running[name] -= 1

    async with asyncio.TaskGroup() as group:
        for name in ["bob"] * 5 + ["alice"]:
            group.create_task(work(name))
        await until(lambda: running == {"bob": 2, "alice": 1})
        gate.set()
    assert running == {"bob": 0, "alice": 0}


async def test_who_gives_up_waiting_takes_no_turn():
    turns = Turns(1)
    async with turns.of("bob"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), turns.of("bob"):
                pass
    async with asyncio.timeout(30), turns.of("bob"):
        pass


async def test_whoever_asks_for_metrics_again_and_again_gets_the_text_of_the_time_before() -> None:
    service = FakeService()

    async def text() -> bytes:
        service.metrics.observe_request("/livez", "GET", 200, 0.001)
        return (await service.get("/metrics", principal=None)).body

    texts = [await text() for _ in range(100)]
    assert len(set(texts)) < 15
    service.limits_clock += 1.0
    assert await text() not in texts
