"""The environment of a run: the machine, the versions, the date."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psycopg

from app.java import find_java
from app.localdev.jars import kafka_version
from benchmarks.competitors.peer import Peers
from benchmarks.stack import BROKER_HEAP

_PACKAGES = (
    "fastapi",
    "starlette",
    "pydantic",
    "uvicorn",
    "uvloop",
    "httptools",
    "orjson",
    "kafka-python",
    "psycopg",
    "sqlalchemy",
    "structlog",
)


_PYTHON = f"{platform.python_implementation()} {platform.python_version()}"


def environment(
    database_url: str, peers: Peers, *, heap: str = BROKER_HEAP
) -> list[tuple[str, str]]:
    """Return what a reader needs to judge the figures: names and texts."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    where = [
        ("Date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("Commit", _commit()),
        ("Machine", f"{_processor()}, {os.cpu_count()} CPUs, {_memory_gib()} GiB, {_system()}"),
        ("Load before the run", f"{os.getloadavg()[0]:.2f} over the last minute"),
        (
            "Broker",
            f"Kafka {kafka_version()}, one node, StandardAuthorizer, {_java()}, heap {heap}",
        ),
        ("Database", f"PostgreSQL {_postgres(database_url)}, fsync on, on the same machine"),
        ("Service", f"one process, {_PYTHON}; it looks for changes of others once an hour only"),
        ("Packages", packages),
    ]
    if peers.present:
        versions = "; ".join(f"{peer.name}: {peer.version}" for peer in peers.present)
        where.append(("Other clients", f"{versions}; `kafka-configs`: Kafka {kafka_version()}"))
    where += [(f"Left out: {name}", reason) for name, reason in peers.left_out.items()]
    return where


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "app")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (", changed" if changed else "")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _system() -> str:
    return f"{platform.system()} {platform.release().partition('-')[0]}"


def _java() -> str:
    printed = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False)
    return printed.stderr.splitlines()[0].replace('"', "")


def _postgres(database_url: str) -> str:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("show server_version").fetchone()
    return str(row[0]) if row else "unknown"
