import os
import socket
from pathlib import Path

import psycopg
import pytest

from app.localdev.postgres import LocalPostgres
from app.localdev.processes import descendants_of, free_ports, wait_until_ended

DEADLINE_S = 30


def answers(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def test_each_role_can_ask(postgres: LocalPostgres):
    for url, role in (
        (postgres.owner_url, "quotas_owner"),
        (postgres.service_url, "quotas_service"),
        (postgres.superuser_url, "postgres"),
    ):
        assert answers(url, "SELECT current_user::text") == [(role,)]


def test_a_commit_is_on_disk_before_it_is_acknowledged(postgres: LocalPostgres):
    settings = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
    assert answers(postgres.owner_url, settings) == [("on", "on")]


def test_the_service_may_not_create_anything(postgres: LocalPostgres):
    with (
        psycopg.connect(postgres.service_url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("CREATE TABLE anything (n int)")


def test_the_service_sees_of_the_owners_tables_what_it_is_granted(postgres: LocalPostgres):
    owner_url, service_url = postgres.create_database("grants")
    with psycopg.connect(owner_url) as connection:
        connection.execute("CREATE TABLE hidden (n int)")
        connection.execute("CREATE TABLE granted (n int)")
        connection.execute("GRANT SELECT ON granted TO quotas_service")
    assert answers(service_url, "SELECT * FROM granted") == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        answers(service_url, "SELECT * FROM hidden")


def test_creating_a_database_twice_keeps_it(postgres: LocalPostgres):
    owner_url, _ = postgres.create_database("twice")
    with psycopg.connect(owner_url) as connection:
        connection.execute("CREATE TABLE t (n int)")
    assert postgres.create_database("twice")[0] == owner_url
    assert answers(owner_url, "SELECT * FROM t") == []


def test_a_wrong_password_is_refused(postgres: LocalPostgres):
    url = postgres.owner_url.replace("quotas_owner:", "quotas_owner:x", 1)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


def test_a_paused_server_does_not_answer_until_it_is_resumed(postgres: LocalPostgres):
    with psycopg.connect(postgres.service_url) as connection:
        postgres.pause()
        try:
            with pytest.raises(psycopg.errors.ConnectionTimeout):
                psycopg.connect(postgres.service_url, connect_timeout=2)
        finally:
            postgres.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_keeps_data_and_addresses_and_stopping_leaves_no_process(
    postgres: LocalPostgres, ending: str
):
    urls = (postgres.owner_url, postgres.service_url)
    with psycopg.connect(postgres.owner_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS endings (name text)")
        connection.execute("INSERT INTO endings VALUES (%s)", (ending,))
    pids = [postgres.pid, *descendants_of(postgres.pid)]
    getattr(postgres, ending)()
    wait_until_ended(pids, DEADLINE_S)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    postgres.start()
    for server in (postgres, LocalPostgres(postgres.directory)):
        assert (server.owner_url, server.service_url) == urls
        assert (ending,) in answers(server.owner_url, "SELECT name FROM endings")


def test_passwords_are_stored_where_others_cannot_read_them(postgres: LocalPostgres):
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
