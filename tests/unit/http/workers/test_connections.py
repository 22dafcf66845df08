"""Connections are counted over all workers."""

from copy import copy

import pytest

from app.http.receive_limits import ReceiveLimits
from app.http.workers.board import Board
from tests.unit.http.raw_server import eventually, raw_server

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def board() -> Board:
    """The board of two workers, of which the other has four connections."""
    board = Board(2)
    board.mine = 2
    board.set_connections(4)
    board.mine = 1
    return board


def as_the_other_sees(board: Board) -> int:
    """Return how many connections this worker has told of."""
    theirs = copy(board)
    theirs.mine = 2
    return theirs.connections_elsewhere()


async def test_those_of_others_leave_less_room(board: Board):
    with raw_server(ReceiveLimits(connections=5), board) as server:
        first = await server.connect()
        first.send(GET)
        assert await first.answer() == (200, b"")
        second = await server.connect()
        assert b" 503 " in await second.rest()
        assert server.rejected("too-many-connections") == 1
        board.has_ended(2)
        third = await server.connect()
        third.send(GET)
        assert await third.answer() == (200, b"")
        assert server.rejected("too-many-connections") == 1
        await server.hang_up()


async def test_the_others_are_told_of_every_end(board: Board):
    with raw_server(ReceiveLimits(connections=50), board) as server:
        for number in (1, 2, 3):
            caller = await server.connect()
            caller.send(GET)
            await caller.answer()
            assert as_the_other_sees(board) == number
        await server.hang_up()
        await eventually(lambda: as_the_other_sees(board) == 0)
