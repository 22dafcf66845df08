"""Requests that are worked on at a time are counted over all workers."""

from copy import copy

import pytest

from app.http.errors import RateLimitedError
from app.http.rate_limits import Limits, RateLimits
from app.http.workers.board import COUNTED, Board
from app.http.workers.working import SharedWorking

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
