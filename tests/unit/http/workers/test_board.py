"""Numbers that all workers see."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.http.errors import RateLimitedError
from app.http.workers.board import FAILURES, Board
from app.http.workers.login_attempts import SharedLoginAttempts


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def board() -> Board:
    board = Board(3)
    board.mine = 1
    return board


@contextmanager
def as_worker(board: Board, number: int) -> Iterator[Board]:
    """Be another worker, which has the same memory, while the block runs."""
    mine, board.mine = board.mine, number
    yield board
    board.mine = mine


def test_connections_of_the_others_are_seen_until_they_end(board: Board):
    board.set_connections(7)
    assert board.connections_elsewhere() == 0
    for number, connections in ((2, 5), (3, 1)):
        with as_worker(board, number):
            board.set_connections(connections)
    assert board.connections_elsewhere() == 6
    board.has_ended(2)
    assert board.connections_elsewhere() == 1


def test_a_change_that_any_worker_made_is_known_to_all(board: Board):
    before = time.monotonic()
    assert board.forgotten_at() < before
    with as_worker(board, 3):
        board.forget()
    told = board.forgotten_at()
    assert before <= told <= time.monotonic()
    board.forget()
    assert board.forgotten_at() > told


def test_failures_are_found_by_their_name_wherever_they_were(board: Board):
    board.add_failure("alice", 5.0)
    board.add_failure("bob", 6.0)
    with as_worker(board, 2):
        board.add_failure("alice", 4.0)
    assert board.failures("alice") == [4.0, 5.0]
    assert board.failures("carol") == []


def test_a_failure_is_taken_back_once(board: Board):
    noted = board.add_failure("alice", 5.0)
    noted.take_back()
    board.add_failure("alice", 6.0)
    noted.take_back()
    assert board.failures("alice") == [6.0]


def test_the_oldest_failures_of_a_worker_make_room(board: Board):
    for number in range(FAILURES + 1):
        board.add_failure(f"user-{number}", float(number))
    assert board.failures("user-0") == []
    assert board.failures("user-1") == [1.0]
    assert board.failures(f"user-{FAILURES}") == [float(FAILURES)]


def test_five_logins_may_fail_at_all_workers_together(board: Board):
    clock = Clock()
    attempts = SharedLoginAttempts(board, now=clock)
    for number in range(3):
        clock.now += number
        attempts.begin("alice", "192.0.2.7")
    clock.now = 1010.0
    for number in (2, 3):
        with as_worker(board, number):
            attempts.begin("alice", "192.0.2.7")
    clock.now = 1011.0
    with pytest.raises(RateLimitedError) as refused:
        attempts.begin("alice", "192.0.2.7")
    assert refused.value.retry_after_s == pytest.approx(49.0)
    attempts.begin("alice", "192.0.2.8")
    attempts.begin("bob", "192.0.2.7")
    clock.now = 1060.5
    attempts.begin("alice", "192.0.2.7")


def test_a_login_that_did_not_fail_and_one_that_was_refused_do_not_count(board: Board):
    counted: list[int] = []
    attempts = SharedLoginAttempts(board, lambda: counted.append(1), now=Clock())
    for _ in range(20):
        attempts.begin("alice", "2001:db8::1")()
    for _ in range(5):
        attempts.begin("alice", "2001:db8::1")
    for _ in range(3):
        with pytest.raises(RateLimitedError):
            attempts.begin("alice", "2001:db8::2")
    assert len(counted) == 3
    assert len(board.failures("2001:db8::/64 alice")) == 5
