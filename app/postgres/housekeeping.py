"""What the log needs from time to time: partitions ahead of it, and expired keys gone."""

from functools import partial
from typing import Final

from app.postgres.database import Database
from app.postgres.keys import remove_expired_keys
from app.postgres.schema import ensure_partitions

_KEYS_AT_ONCE: Final = 1000


async def keep_house(database: Database) -> int:
    """Create missing partitions and forget expired idempotency keys; return how many partitions.

    Meant to be called every few hours; any number of processes may do it at once.

    Raises:
        NotSentError: Postgres did not do all of it.
    """
    created = await ensure_partitions(database)
    remove = partial(remove_expired_keys, _KEYS_AT_ONCE)
    while await database.recovering.run(remove) == _KEYS_AT_ONCE:
        pass
    return created
