"""A Postgres of this machine: what neither the service nor its outages would notice."""

import socket
from pathlib import Path

import psycopg
import pytest

from app.localdev.postgres import LocalPostgres
from app.localdev.processes import free_ports


def test_a_commit_is_on_disk_before_it_is_acknowledged(postgres: LocalPostgres):
    settings = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
    with psycopg.connect(postgres.owner_url) as connection:
        assert connection.execute(settings).fetchone() == ("on", "on")


def test_a_wrong_password_is_refused_and_its_file_is_for_its_owner(postgres: LocalPostgres):
    url = postgres.owner_url.replace("quotas_owner:", "quotas_owner:x", 1)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)
    assert (postgres.directory / "server.json").stat().st_mode & 0o077 == 0


def test_a_port_that_is_taken_between_probe_and_start_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        probed = iter([taken, *free_ports(1)])
        monkeypatch.setattr("app.localdev.postgres.free_ports", lambda count: [next(probed)])
        with LocalPostgres(tmp_path, settings={"fsync": "off"}) as server:
            assert f":{taken}/" not in server.service_url
            with psycopg.connect(server.service_url) as connection:
                assert connection.execute("select 1").fetchone() == (1,)
