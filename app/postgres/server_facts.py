"""What the server says of itself, as far as the truth of the log rests on it."""

import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from app.postgres.database import Database
from app.postgres.leases import Lease

_FACTS: Final = text(
    """
    select
      current_setting('fsync') as fsync,
      current_setting('full_page_writes') as full_page_writes,
      current_setting('synchronous_commit') as synchronous_commit,
      extract(epoch from clock_timestamp())::float8 as clock_s,
      coalesce((select relowner = current_user::regrole from pg_class
        where oid = to_regclass('audit_event')), false) as owns_the_log,
      (select rolsuper from pg_roles where rolname = current_user) as is_superuser,
      current_user as role
    """
)

_DURABLE: Final = ("fsync", "full_page_writes", "synchronous_commit")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What was found.

    Attributes:
        off: Those of ``fsync``, ``full_page_writes`` and ``synchronous_commit`` that are off: a
            crash may then lose rows that were acknowledged, or the whole log.
        clock_ahead_s: How far the server's clock is ahead of this machine's, in seconds, at least:
            what the question itself took is not counted.
        role: Of the service.
        owns_the_log: Whether the role could change the log by changing its table.
        is_superuser: Whether nothing is forbidden to the role.
    """

    off: tuple[str, ...]
    clock_ahead_s: float
    role: str
    owns_the_log: bool
    is_superuser: bool


async def server_facts(database: Database) -> ServerFacts:
    """Ask the server.

    Raises:
        NotSentError: It does not answer.
    """
    return await database.recovering.run(_asked)


async def _asked(lease: Lease) -> ServerFacts:
    before = time.time()
    row = (await lease.connection.execute(_FACTS)).one()
    after = time.time()
    return ServerFacts(
        tuple(name for name in _DURABLE if getattr(row, name) == "off"),
        _distance(row.clock_s, before, after),
        row.role,
        row.owns_the_log,
        row.is_superuser,
    )


def _distance(clock_s: float, before: float, after: float) -> float:
    """Return how far a time is outside of an interval: 0 within, negative before it."""
    if clock_s > after:
        return clock_s - after
    return min(clock_s - before, 0.0)
