"""Numbers that all workers share: failed logins, connections, requests in flight."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

import pytest

from app.http.errors import RateLimitedError
from app.http.rate_limits import Limits, RateLimits
from app.http.receive_limits import ReceiveLimits
from app.http.workers.board import COUNTED, FAILURES, Board
from app.http.workers.login_attempts import SharedLoginAttempts
from app.http.workers.working import SharedWorking
from tests.testkit.virtual_time import ManualClock
from tests.unit.http.raw_server import eventually, raw_server


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
    clock = ManualClock()
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
    attempts = SharedLoginAttempts(board, lambda: counted.append(1), now=ManualClock())
    for _ in range(20):
        attempts.begin("alice", "2001:db8::1")()
    for _ in range(5):
        attempts.begin("alice", "2001:db8::1")
    for _ in range(3):
        with pytest.raises(RateLimitedError):
            attempts.begin("alice", "2001:db8::2")
    assert len(counted) == 3
    assert len(board.failures("2001:db8::/64 alice")) == 5


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def shared_board() -> Board:
    """The board of two workers, of which the other has four connections."""
    shared_board = Board(2)
    shared_board.mine = 2
    shared_board.set_connections(4)
    shared_board.mine = 1
    return shared_board


def as_the_other_sees(shared_board: Board) -> int:
    """Return how many connections this worker has told of."""
    theirs = copy(shared_board)
    theirs.mine = 2
    return theirs.connections_elsewhere()


async def test_those_of_others_leave_less_room(shared_board: Board):
    with raw_server(ReceiveLimits(connections=5), shared_board) as server:
        first = await server.connect()
        first.send(GET)
        assert await first.answer() == (200, b"")
        second = await server.connect()
        assert b" 503 " in await second.rest()
        assert server.rejected("too-many-connections") == 1
        shared_board.has_ended(2)
        third = await server.connect()
        third.send(GET)
        assert await third.answer() == (200, b"")
        assert server.rejected("too-many-connections") == 1
        await server.hang_up()


async def test_the_others_are_told_of_every_end(shared_board: Board):
    with raw_server(ReceiveLimits(connections=50), shared_board) as server:
        for number in (1, 2, 3):
            caller = await server.connect()
            caller.send(GET)
            await caller.answer()
            assert as_the_other_sees(shared_board) == number
        await server.hang_up()
        await eventually(lambda: as_the_other_sees(shared_board) == 0)


LIMITS = Limits(0.0, 0.0, 3, 0.0)


@pytest.fixture
def boards() -> list[Board]:
    """The board as the parent and two workers see it."""
    boards = [Board(2)]
    for number in (1, 2):
        boards.append(copy(boards[0]))
        boards[-1].mine = number
    return boards


def test_all_workers_together_let_so_many_requests_run(boards: list[Board]):
    one, two = (RateLimits(LIMITS, working=SharedWorking(board)) for board in boards[1:])
    ends = [one.begin("User:alice"), two.begin("User:alice"), two.begin("User:alice")]
    for worker in (one, two):
        with pytest.raises(RateLimitedError, match="3 requests at once"):
            worker.begin("User:alice")
        worker.begin("User:bob")()
    ends[1]()
    one.begin("User:alice")
    with pytest.raises(RateLimitedError):
        two.begin("User:alice")


def test_what_a_dead_worker_was_at_is_not_counted(boards: list[Board]):
    parent, first, second = boards
    dead = SharedWorking(first)
    assert [dead.add("User:alice") for _ in range(3)] == [1, 2, 3]
    other = SharedWorking(second)
    assert other.add("User:alice") == 4
    parent.has_ended(1)
    assert other.add("User:alice") == 2
    assert SharedWorking(first).add("User:alice") == 3


def test_places_are_used_again_and_whoever_finds_none_is_counted_alone(boards: list[Board]):
    one, two = SharedWorking(boards[1]), SharedWorking(boards[2])
    for _ in range(2):
        for number in range(COUNTED + 1):
            assert one.add(f"User:{number}") == 1
        assert two.add("User:0") == 2
        assert two.add(f"User:{COUNTED}") == 1
        for working, numbers in ((one, range(COUNTED + 1)), (two, (0, COUNTED))):
            for number in numbers:
                working.remove(f"User:{number}")
    assert two.add("User:0") == 1
