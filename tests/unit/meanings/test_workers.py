"""Settings that several workers need: their number, and the sockets of their parent."""

import socket

import pytest

from app.meanings.listeners import Listener
from app.settings import Settings, SettingsError
from tests.unit.meanings.test_production import CHECKS


def settings(**changes: str) -> Settings:
    return Settings.from_env({**CHECKS, **{f"QUOTAS_{name}": at for name, at in changes.items()}})


@pytest.mark.parametrize("number", ["0", "-1", "65", "many"])
def test_there_are_one_to_64_workers(number: str):
    with pytest.raises(SettingsError, match="QUOTAS_WORKERS"):
        settings(WORKERS=number)


def test_a_process_serves_alone_unless_told_otherwise():
    assert settings().workers == 1


def test_bound_sockets_do_not_listen_yet_and_are_on_the_port_that_was_asked_for():
    (free,) = Listener("QUOTAS_PORT", "127.0.0.1", 0).bind()
    port = free.getsockname()[1]
    free.close()
    (bound,) = Listener("QUOTAS_PORT", "127.0.0.1", port).bind()
    with bound, socket.socket() as caller:
        assert bound.getsockname() == ("127.0.0.1", port)
        assert caller.connect_ex(("127.0.0.1", port)) != 0
        assert not bound.getblocking()
