"""How this service connects: its URL taken apart, and the limits that a connection carries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.service.runtime.clock import Patience


@dataclass(frozen=True, slots=True)
class Limits:
    """What one pool may use.

    Attributes:
        name: What is reported to operators.
        size: Connections.
        reports: Whether its statements may take as long as a report, by the server's own limit.
        autocommit: Whether each statement is its own transaction.
        lifetime_s: After about so long a connection is replaced: Postgres's process of it grows.
    """

    name: str
    size: int
    reports: bool = False
    autocommit: bool = False
    lifetime_s: float = 3600.0


WRITING: Final = Limits("writing", size=8)
RECOVERING: Final = Limits("recovering", size=4)
DENYING: Final = Limits("denying", size=1)
LEADING: Final = Limits("leading", size=1, autocommit=True, lifetime_s=math.inf)
QUERYING: Final = Limits("querying", size=4, reports=True, autocommit=True)


_SETTINGS: Final[Mapping[str, object]] = {
    "client_connection_check_interval": 1_000,
    "timezone": "UTC",
    "plan_cache_mode": "force_custom_plan",
    "enable_hashjoin": "off",
    "jit": "off",
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 4,
}
"""Times are in ms, those of TCP in s: what a lost machine has locked is free within 30 s. What
is not waited for any more ends within a second.

Of the planner we want one thing: to walk an index and look up the rest by primary key, which a
partial index and a limit allow only when it sees the values."""


def connection_parameters(url: str, limits: Limits, patience: Patience) -> dict[str, Any]:
    """Return what psycopg takes, with the limits of a pool.

    Raises:
        ValueError: The URL cannot be read.
    """
    parameters = read_url(url)
    statement_s = patience.report_s if limits.reports else patience.statement_s
    settings = {
        "statement_timeout": round(statement_s * 1000),
        "lock_timeout": round(patience.lock_s * 1000),
        "idle_in_transaction_session_timeout": round(patience.idle_s * 1000),
        **_SETTINGS,
    }
    options = [parameters.get("options", "")]
    options += [f"-c {name}={value}" for name, value in settings.items()]
    return {
        "application_name": "kafka-quota-service",
        **parameters,
        "options": " ".join(options).strip(),
    }


def read_url(url: str) -> dict[str, Any]:
    """Return a ``postgresql://`` URL taken apart.

    Raises:
        ValueError: The URL cannot be read. Its text, which holds a password, is not repeated.
    """
    scheme, separator, rest = url.partition("://")
    if scheme.partition("+")[0] not in ("postgresql", "postgres") or not separator:
        message = "a database URL begins with postgresql://"
        raise ValueError(message)
    try:
        return {**conninfo_to_dict(f"postgresql://{rest}"), "client_encoding": "UTF8"}
    except psycopg.Error:
        message = "the database URL cannot be read: postgresql://user:password@host:port/database"
        raise ValueError(message) from None
