"""What the log needs from time to time: partitions ahead of it, and expired keys gone."""

from functools import partial
from typing import Final

from app.postgres.database import Database
from app.postgres.keys import remove_expired_keys
from app.postgres.leases import Lease
from app.postgres.partitions import MONTHS_AHEAD
from app.postgres.plans import remove_expired_plans
from app.postgres.schema import ensure_partitions

_KEYS_AT_ONCE: Final = 1000
_PLANS_AT_ONCE: Final = 100


async def keep_house(database: Database) -> int:
    """Create missing partitions, forget expired keys and plans; return how many partitions.

    Meant to be called every few hours; any number of processes may do it at once.

    Raises:
        NotSentError: Postgres did not do all of it.
    """
    created = await ensure_partitions(database)
    remove = partial(remove_expired_keys, _KEYS_AT_ONCE)
    while await database.recovering.run(remove) == _KEYS_AT_ONCE:
        pass
    remove = partial(remove_expired_plans, _PLANS_AT_ONCE)
    while await database.recovering.run(remove) == _PLANS_AT_ONCE:
        pass
    return created


async def months_ahead(database: Database) -> int:
    """Return for how many months after the present one there are partitions; -1: not even for it.

    Raises:
        NotSentError: Postgres does not answer.
    """
    return await database.recovering.run(_months_ahead)


async def _months_ahead(lease: Lease) -> int:
    return int((await lease.connection.execute(MONTHS_AHEAD)).scalar_one())
