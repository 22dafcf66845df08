"""A dependency that is down is found out by five callers, not by every one."""

import asyncio

import pytest

from app.domain.errors import EntityBusyError, NotSentError
from app.service.ports.audit_log import KeyTakenError, StoredKey
from app.service.ports.metrics import BreakerState
from app.service.runtime.circuit_breaker import FAILURES, PROBE_EVERY_S, CircuitBreaker
from tests.testkit.virtual_time import ManualClock


class Dependency:
    """Counts who reaches it; ``answer`` is raised, null succeeds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.states: list[BreakerState] = []
        self.reached = 0
        self.answer: BaseException | None = None
        self.breaker = CircuitBreaker(
            "audit-log-unavailable",
            "The audit log is down; nothing was sent.",
            watch=self.states.append,
            now=self.clock,
        )

    def call(self) -> None:
        with self.breaker.attempt():
            self.reached += 1
            if self.answer is not None:
                raise self.answer

    def fail(self, times: int) -> None:
        self.answer = NotSentError("down", code="audit-log-unavailable")
        for _ in range(times):
            with pytest.raises(NotSentError):
                self.call()


@pytest.fixture
def dependency() -> Dependency:
    return Dependency()


def test_it_lets_everything_pass_while_it_is_closed(dependency: Dependency):
    for _ in range(100):
        dependency.call()
    assert dependency.reached == 100
    assert dependency.states == [BreakerState.CLOSED]


def test_five_failures_in_a_row_open_it_and_nobody_reaches_the_dependency(dependency: Dependency):
    dependency.fail(FAILURES)
    assert dependency.states == [BreakerState.CLOSED, BreakerState.OPEN]
    for _ in range(100):
        with pytest.raises(NotSentError) as raised:
            dependency.call()
        assert raised.value.code == "audit-log-unavailable"
        assert raised.value.detail == "The audit log is down; nothing was sent."
        assert raised.value.retry_after_s == PROBE_EVERY_S
    assert dependency.reached == FAILURES


def test_failures_with_a_success_between_them_do_not_open_it(dependency: Dependency):
    for _ in range(10):
        dependency.fail(FAILURES - 1)
        dependency.answer = None
        dependency.call()
    assert dependency.states == [BreakerState.CLOSED]


def test_while_it_is_open_one_probe_passes_every_two_seconds(dependency: Dependency):
    dependency.fail(FAILURES)
    for second in range(1, 11):
        dependency.clock.now = 1000.0 + second
        dependency.fail(3)
    assert dependency.reached == FAILURES + 5
    assert dependency.states == [BreakerState.CLOSED, BreakerState.OPEN]


def test_a_probe_that_succeeds_closes_it(dependency: Dependency):
    dependency.fail(FAILURES)
    dependency.answer = None
    dependency.clock.now += PROBE_EVERY_S - 0.001
    with pytest.raises(NotSentError):
        dependency.call()
    dependency.clock.now += 0.001
    dependency.call()
    dependency.call()
    assert dependency.states == [BreakerState.CLOSED, BreakerState.OPEN, BreakerState.CLOSED]
    dependency.fail(FAILURES - 1)
    assert dependency.breaker.state is BreakerState.CLOSED


def test_a_probe_that_fails_keeps_it_open_for_two_seconds_more(dependency: Dependency):
    dependency.fail(FAILURES)
    dependency.clock.now += 7.5
    dependency.fail(1)
    with pytest.raises(NotSentError) as raised:
        dependency.call()
    assert raised.value.retry_after_s == PROBE_EVERY_S


@pytest.mark.parametrize(
    "answer", [EntityBusyError("busy"), KeyTakenError(StoredKey("id", b""))], ids=["busy", "taken"]
)
def test_an_answer_that_is_a_refusal_is_an_answer(dependency: Dependency, answer: Exception):
    dependency.fail(FAILURES)
    dependency.clock.now += PROBE_EVERY_S
    dependency.answer = answer
    with pytest.raises(type(answer)):
        dependency.call()
    assert dependency.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize("answer", [asyncio.CancelledError(), RuntimeError("a bug")])
def test_what_is_cancelled_or_a_bug_teaches_nothing(dependency: Dependency, answer: BaseException):
    dependency.fail(FAILURES - 1)
    dependency.answer = answer
    for _ in range(10):
        with pytest.raises(type(answer)):
            dependency.call()
    assert dependency.breaker.state is BreakerState.CLOSED
    dependency.fail(1)
    assert dependency.breaker.state is BreakerState.OPEN
    dependency.clock.now += PROBE_EVERY_S
    dependency.answer = answer
    with pytest.raises(type(answer)):
        dependency.call()
    assert dependency.breaker.state is BreakerState.OPEN


def test_a_late_success_of_a_request_under_way_closes_it(dependency: Dependency):
    with dependency.breaker.attempt():
        dependency.fail(FAILURES)
        assert dependency.breaker.state is BreakerState.OPEN
    assert dependency.breaker.state is BreakerState.CLOSED
