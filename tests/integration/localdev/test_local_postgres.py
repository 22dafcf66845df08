import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.localdev.descendants import descendants_of, wait_until_ended
from app.localdev.postgres import LocalPostgres

DEADLINE_S = 30


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    with LocalPostgres(tmp_path_factory.mktemp("postgres")) as postgres:
        yield postgres


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
        connection.execute("CREATE TABLE kept (n int)")
    assert postgres.create_database("twice")[0] == owner_url
    assert answers(owner_url, "SELECT * FROM kept") == []


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
    tmp_path: Path, ending: str
):
    with LocalPostgres(tmp_path) as first:
        urls = (first.owner_url, first.service_url)
        with psycopg.connect(first.owner_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        pids = [first.pid, *descendants_of(first.pid)]
        getattr(first, ending)()
        wait_until_ended(pids, DEADLINE_S)
        with pytest.raises(ProcessLookupError):
            os.kill(pids[0], 0)
    with LocalPostgres(tmp_path) as second:
        assert (second.owner_url, second.service_url) == urls
        assert answers(second.owner_url, "SELECT n FROM kept") == [(7,)]


def test_passwords_are_kept_where_others_cannot_read_them(postgres: LocalPostgres):
    assert (postgres.directory / "server.json").stat().st_mode & 0o077 == 0
