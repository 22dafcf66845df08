import math

import pytest

from app.http.authentication.login_attempts import (
    MOST_FAILURES,
    MOST_REMEMBERED,
    WITHIN_S,
    LoginAttempts,
)
from app.http.errors import RateLimitedError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> LoginAttempts:
    return LoginAttempts(now=clock)


def test_the_sixth_failure_within_a_minute_is_too_many(
    attempts: LoginAttempts, clock: Clock
) -> None:
    for _ in range(MOST_FAILURES):
        attempts.begin("alice", "10.0.0.1")
        clock.now += 1
    with pytest.raises(RateLimitedError) as caught:
        attempts.begin("alice", "10.0.0.1")
    assert caught.value.retry_after_s == WITHIN_S - MOST_FAILURES
    clock.now += math.ceil(caught.value.retry_after_s or 0)
    attempts.begin("alice", "10.0.0.1")
    with pytest.raises(RateLimitedError):
        attempts.begin("alice", "10.0.0.1")


def test_refused_attempts_do_not_make_the_waiting_longer(
    attempts: LoginAttempts, clock: Clock
) -> None:
    for _ in range(MOST_FAILURES):
        attempts.begin("alice", "10.0.0.1")
    for _ in range(1000):
        with pytest.raises(RateLimitedError):
            attempts.begin("alice", "10.0.0.1")
    clock.now += WITHIN_S
    attempts.begin("alice", "10.0.0.1")


def test_other_users_and_other_addresses_have_their_own_count(attempts: LoginAttempts) -> None:
    for _ in range(MOST_FAILURES):
        attempts.begin("alice", "10.0.0.1")
    attempts.begin("alice", "10.0.0.2")
    attempts.begin("bob", "10.0.0.1")


def test_an_ipv6_network_is_one_address(attempts: LoginAttempts) -> None:
    for number in range(MOST_FAILURES):
        attempts.begin("alice", f"2001:db8::{number}")
    with pytest.raises(RateLimitedError):
        attempts.begin("alice", "2001:db8::ffff")


def test_successes_are_not_counted(attempts: LoginAttempts) -> None:
    for _ in range(100):
        attempts.begin("alice", "10.0.0.1")()


def test_attempts_under_way_count_as_failed(attempts: LoginAttempts) -> None:
    under_way = [attempts.begin("alice", "10.0.0.1") for _ in range(MOST_FAILURES)]
    with pytest.raises(RateLimitedError):
        attempts.begin("alice", "10.0.0.1")
    under_way[2]()
    attempts.begin("alice", "10.0.0.1")


def test_a_refusal_is_counted() -> None:
    told: list[None] = []
    attempts = LoginAttempts(lambda: told.append(None))
    for _ in range(MOST_FAILURES):
        attempts.begin("alice", "10.0.0.1")
    with pytest.raises(RateLimitedError):
        attempts.begin("alice", "10.0.0.1")
    assert len(told) == 1


def test_the_memory_is_bounded(attempts: LoginAttempts) -> None:
    for number in range(MOST_REMEMBERED + 100):
        attempts.begin(f"user-{number}", "10.0.0.1")
    assert len(attempts) == MOST_REMEMBERED
