"""The counts of refused credentials in Postgres: append-only, a few rows for each minute."""

from collections.abc import Sequence
from typing import Final

from app.postgres.pool import Database
from app.service.auth.denials import FailureCount

_INSERT: Final = """
    insert into authentication_failure (id, minute, source, method, reason, n)
    select * from unnest(
      cast(%(ids)s as uuid[]), cast(%(minutes)s as timestamptz[]), cast(%(sources)s as cidr[]),
      cast(%(methods)s as text[]), cast(%(reasons)s as text[]), cast(%(numbers)s as bigint[]))
    on conflict do nothing
    """


async def record_authentication_failures(
    database: Database, counts: Sequence[FailureCount]
) -> None:
    """Store counts in one transaction, each once.

    Raises:
        NotSentError: They may not be stored.
    """
    values = {
        "ids": [count.row_id for count in counts],
        "minutes": [count.minute for count in counts],
        "sources": [count.source for count in counts],
        "methods": [count.method for count in counts],
        "reasons": [count.reason for count in counts],
        "numbers": [count.number for count in counts],
    }
    await database.recovering.rows(_INSERT, values)
