"""Servers that are down for the length of a block, and a Postgres that runs but refuses."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.testkit.patience import DEADLINE_S, wait_until
from tests.testkit.service import RunningService

ALTERATIONS: Final = "/quotas/alterations"

OUTAGES: Final[Mapping[str, tuple[str, str]]] = {
    "stopped": ("stop", "start"),
    "killed": ("kill", "start"),
    "paused": ("pause", "resume"),
}
"""How a server goes down, and up again."""


@contextmanager
def outage(server: LocalKafka | LocalPostgres, kind: str) -> Iterator[None]:
    """Keep a server down, one of ``OUTAGES``."""
    down, up = OUTAGES[kind]
    getattr(server, down)()
    try:
        yield
    finally:
        getattr(server, up)()


def change(name: str, value: float = 1024, **options: Any) -> dict[str, Any]:
    op = {"key": "producer_byte_rate", "value": value}
    return {"alterations": [{"entity": {"user": name}, "ops": [op]}], **options}


def ask(
    service: RunningService, method: str, path: str, body: Any = None, principal: str = "alice"
) -> httpx.Response:
    """Ask as a caller who waits for an answer, not for ever."""
    return service.api(principal).request(method, path, json=body)


def alter(service: RunningService, name: str, **options: Any) -> httpx.Response:
    """Set one quota of a user; ``options`` are members of the body."""
    return ask(service, "POST", ALTERATIONS, change(name, **options))


def until_done(asks: Callable[[], httpx.Response], what: str) -> None:
    """Ask until the answer is 200; a failure tells what was answered last."""
    deadline = time.monotonic() + DEADLINE_S
    while (answer := asks()).status_code != httpx.codes.OK:
        assert time.monotonic() < deadline, f"{what}: {answer.status_code} {answer.text}"
        time.sleep(0.05)


Trouble = Callable[[LocalPostgres], AbstractContextManager[None]]

_TERMINATE: Final = (
    "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'quotas_service'"
)
_BLOCK_BYTES: Final = 1 << 20


@contextmanager
def altered(url: str, breaking: Sequence[str], repair: Sequence[str]) -> Iterator[None]:
    """Execute statements, and others at the end of the block, in one session."""
    with psycopg.connect(url, autocommit=True) as session:
        try:
            for statement in breaking:
                session.execute(statement)
            yield
        finally:
            for statement in repair:
                session.execute(statement)


def service_refused(server: LocalPostgres) -> AbstractContextManager[None]:
    """Let the service's role have no connection any more."""
    limit = "alter role quotas_service connection limit"
    return altered(server.superuser_url, (f"{limit} 0", _TERMINATE), (f"{limit} -1",))


@contextmanager
def connections_used_up(server: LocalPostgres) -> Iterator[None]:
    """Let others have every connection of the server."""
    with ExitStack() as others:
        superuser = others.enter_context(psycopg.connect(server.superuser_url, autocommit=True))

        def take_all() -> bool:
            """Take what is free, then what the service has; tell whether it has none."""
            try:
                while True:
                    others.enter_context(psycopg.connect(server.superuser_url))
            except psycopg.OperationalError:
                return superuser.execute(_TERMINATE).rowcount == 0

        wait_until(take_all, "the service keeps a connection")
        yield


def read_only(server: LocalPostgres) -> AbstractContextManager[None]:
    """Let the server accept reads alone, as a standby does."""
    setting, reload = "default_transaction_read_only", "select pg_reload_conf()"
    breaking = (f"set {setting} = off", f"alter system set {setting} = on", reload, _TERMINATE)
    return altered(server.superuser_url, breaking, (f"alter system reset {setting}", reload))


def slow_intents(database: str, server: LocalPostgres) -> AbstractContextManager[None]:
    """Let each row of a database's audit table take longer than anybody waits."""
    function = (
        "create function take_long() returns trigger language plpgsql as "
        "$$ begin perform pg_sleep(600); return new; end $$"
    )
    trigger = (
        "create trigger slow before insert on audit_event for each row execute function take_long()"
    )
    # Locks as the service does: the table, then partitions.
    lock = "lock table audit_event in access exclusive mode"
    repair = ("begin", lock, "drop function take_long cascade", "commit")
    return altered(_url_of(database, server), (function, trigger), repair)


def table_missing(database: str, server: LocalPostgres) -> AbstractContextManager[None]:
    """Let the audit table of a database be gone."""
    breaking = ("alter table audit_event rename to elsewhere",)
    repair = ("alter table elsewhere rename to audit_event",)
    return altered(_url_of(database, server), breaking, repair)


def _url_of(database: str, server: LocalPostgres) -> str:
    return server.superuser_url.removesuffix("/postgres") + f"/{database}"


@contextmanager
def disk_full(folder: Path, server: LocalPostgres) -> Iterator[None]:
    """Fill the file system of a folder to the last byte.

    A Postgres that has ended over it is started again once the disk has space, as by a supervisor.
    """
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            for size in (_BLOCK_BYTES, os.sysconf("SC_PAGE_SIZE")):
                _write_until_full(file.fileno(), size)
        yield
    finally:
        filler.unlink()
        server.start()


def _write_until_full(descriptor: int, size: int) -> None:
    try:
        while True:
            os.write(descriptor, bytes(size))
    except OSError:
        return


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a small file system of its own at an empty folder; needs the rights to mount."""
    options = f"size={megabytes}m,mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


ANYWHERE: Final[dict[str, Trouble]] = {
    **{kind: partial(outage, kind=kind) for kind in OUTAGES},
    "without a connection for the service": service_refused,
    "without any connection left": connections_used_up,
}
"""Whatever leaves the service without Postgres, and needs no rights on this machine."""
