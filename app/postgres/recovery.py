"""What recovery works on: entities without a known outcome, claimed by one process at a time."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from sqlalchemy import text

from app.postgres.claims import claim_slots, open_alterations
from app.postgres.copying import MANY
from app.postgres.database import Database
from app.postgres.findings import record_found
from app.postgres.leases import Lease
from app.service.metrics_port import OpenIntents
from app.service.recovery.recover import FINAL_AFTER_S
from app.service.recovery.recovery_ports import OpenAlteration, Place, Recovered

_BEAT: Final = text(
    """
    with gone as (delete from worker where seen_at < clock_timestamp() - interval '1 day'
      and (cluster_id, owner) <> (:cluster_id, :owner))
    insert into worker (cluster_id, owner, seen_at)
    values (:cluster_id, :owner, clock_timestamp())
    on conflict (cluster_id, owner) do update set seen_at = excluded.seen_at
    """
)

_GIVE_BACK: Final = text(
    """
    update entity_slot set claimed_by = null, claimed_until = null
    where cluster_id = :cluster_id and claimed_by = :owner
    """
)

_OPEN: Final = text(
    """
    select count(*) as number, count(*) filter (where state = 'quarantined') as quarantined,
      coalesce(extract(epoch from clock_timestamp() - min(taken_at)), 0)::float8 as oldest_s
    from entity_slot where cluster_id = :cluster_id
    """
)


class PostgresRecovery:
    """The port ``RecoveryJournal`` on Postgres, with connections of its own.

    Args:
        database: The service's connections.
        final_after_s: When an observed entity is due again, in seconds after the sending.
    """

    def __init__(self, database: Database, *, final_after_s: float = FINAL_AFTER_S) -> None:
        self._database = database
        self._final_after_s = final_after_s

    async def beat(self, cluster_id: str, owner: str) -> None:
        """Say that the owner lives: whoever is silent for 5 s is taken for dead.

        Raises:
            NotSentError: Postgres did not do it.
        """
        await self._database.recovering.run(partial(_beat, cluster_id, owner))

    async def claim_open(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[OpenAlteration]:
        """Claim for 15 s what nobody else has claimed, the oldest first, in one statement.

        What was observed is left alone until it can be final. What a living owner holds for a
        minute longer than it can need is claimed too: it knows nothing of it, as where the commit
        of an intent was in doubt and came late.

        Raises:
            NotSentError: Postgres did not do it.
        """
        claim = partial(claim_slots, cluster_id, owner, limit, self._final_after_s)
        rows = await self._database.recovering.run(claim)
        if len(rows) < MANY:
            return open_alterations(rows)
        return await asyncio.to_thread(open_alterations, rows)

    async def give_back(self, cluster_id: str, owner: str) -> None:
        """Let others claim at once what the owner has claimed and not recovered.

        Raises:
            NotSentError: Postgres did not do it; others wait until the claims end.
        """
        await self._database.recovering.run(partial(_give_back, cluster_id, owner))

    async def open_intents(self, cluster_id: str) -> OpenIntents:
        """Count the entities of the cluster, of all processes, that have no definite outcome yet.

        Raises:
            NotSentError: The log cannot be read.
        """
        return await self._database.recovering.run(partial(_count, cluster_id))

    async def record_recovery(self, recovered: Sequence[Recovered]) -> Mapping[Place, str]:
        """Add what was found to the log, all in one transaction; what is final frees the slot.

        Repeating it is harmless. What was only observed is left out once more is known.

        Returns:
            What was left as it is because the log has another conclusion, or no such entity.

        Raises:
            NotSentError: Not recorded, or not known to be; repeating it is safe.
        """
        return await self._database.recovering.run(partial(record_found, recovered))


async def _count(cluster_id: str, lease: Lease) -> OpenIntents:
    row = (await lease.connection.execute(_OPEN, {"cluster_id": cluster_id})).one()
    return OpenIntents(row.number, row.oldest_s, row.quarantined)


async def _give_back(cluster_id: str, owner: str, lease: Lease) -> None:
    await lease.connection.execute(_GIVE_BACK, {"cluster_id": cluster_id, "owner": owner})


async def _beat(cluster_id: str, owner: str, lease: Lease) -> None:
    await lease.connection.execute(_BEAT, {"cluster_id": cluster_id, "owner": owner})
