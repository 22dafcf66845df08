"""Cutting a connection off: it never fails, whatever has become of the connection."""

import socket
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from app.postgres.leases import Lease


@dataclass
class Driver:
    """A connection as far as cutting it off goes."""

    socket: socket.socket
    closed: bool = False

    def fileno(self) -> int:
        return self.socket.fileno()


@pytest.fixture
def ends() -> Any:
    """A connection over TCP, seen from both sides."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


def lease_of(driver: Any) -> Lease:
    lease = Lease(1.0)
    lease.hold_driver(driver)
    return lease


async def test_a_connection_that_is_cut_off_ends_for_both_sides(ends: Any):
    ours, theirs = ends
    assert lease_of(Driver(ours)).cut()
    assert theirs.recv(1) == b""
    assert ours.recv(1) == b""


async def test_a_connection_that_the_other_side_has_reset_can_be_cut_off(ends: Any):
    ours, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(OSError, match="not connected"):
        ours.shutdown(socket.SHUT_RDWR)
    assert lease_of(Driver(ours)).cut()
    assert ours.fileno() > 0, "it is still the driver's to close"


async def test_there_is_nothing_to_cut_off_before_there_is_a_connection(ends: Any):
    ours, theirs = ends
    assert not Lease(1.0).cut()
    assert not lease_of(Driver(ours, closed=True)).cut()
    ours.close()
    assert theirs.recv(1) == b""
