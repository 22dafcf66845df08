"""What recovery works on: entities without a known outcome, claimed by one process at a time."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, text

from app.domain.errors import NotFoundError
from app.postgres.canonical import values_from_json
from app.postgres.closing import close_slots, closing
from app.postgres.copying import copy_rows, log_time
from app.postgres.database import Database
from app.postgres.event_records import audit_entity
from app.postgres.later_events import Story, recovery_row, stories
from app.postgres.leases import Lease
from app.service.metrics_port import OpenIntents
from app.service.ports import OpenAlteration, Recovered
from app.service.recover import FINAL_AFTER_S

_BEAT: Final = text(
    """
    with gone as (delete from worker where seen_at < clock_timestamp() - interval '1 day'
      and owner <> :owner)
    insert into worker (owner, seen_at) values (:owner, clock_timestamp())
    on conflict (owner) do update set seen_at = excluded.seen_at
    """
)

_CLAIM: Final = text(
    """
    with due as (
      select cluster_id, entity_hash from entity_slot as slot
      where (claimed_until is null or claimed_until < now())
        and (not observed or handed_over_by <= now() - make_interval(secs => :final_after))
        and (state = 'quarantined' or handed_over_by < now() - interval '1 min'
          or handed_over_by < now() - interval '2 s' and not exists (
            select from worker
            where worker.owner = slot.owner and seen_at > now() - interval '5 s'))
      order by handed_over_by limit :number
      for update skip locked
    ), claimed as (
      update entity_slot as slot
      set claimed_by = :owner, claimed_until = clock_timestamp() + interval '15 s'
      from due
      where slot.cluster_id = due.cluster_id and slot.entity_hash = due.entity_hash
      returning slot.*
    )
    select claimed.alteration_id, claimed.cluster_id, broker_id, state, observed,
      intent.payload as intent, outcome.payload as outcome,
      extract(epoch from clock_timestamp() - handed_over_by)::float8 as age_s
    from claimed
    join audit_event as intent on intent.received_at = claimed.received_at
      and intent.alteration_id = claimed.alteration_id and intent.ordinal = claimed.ordinal
      and intent.seq = 0
    left join audit_event as outcome on outcome.received_at = claimed.received_at
      and outcome.alteration_id = claimed.alteration_id and outcome.ordinal = claimed.ordinal
      and outcome.seq = 1
    order by handed_over_by
    """
)

_HOLD: Final = text(
    """
    select observed from entity_slot
    where alteration_id = :alteration_id and ordinal = :ordinal for update
    """
)

_OBSERVED: Final = text(
    """
    update entity_slot set observed = true, claimed_by = null, claimed_until = null
    where alteration_id = :alteration_id and ordinal = :ordinal
    """
)


_OPEN: Final = text(
    """
    select count(*) as number, count(*) filter (where state = 'quarantined') as quarantined,
      coalesce(extract(epoch from clock_timestamp() - min(taken_at)), 0)::float8 as oldest_s
    from entity_slot
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

    async def beat(self, owner: str) -> None:
        """Say that the owner lives: whoever is silent for 5 s is taken for dead.

        Raises:
            NotSentError: Postgres did not do it.
        """
        await self._database.recovering.run(partial(_beat, owner))

    async def claim_open(self, owner: str, *, limit: int) -> Sequence[OpenAlteration]:
        """Claim for 15 s what nobody else has claimed, the oldest first.

        What was observed is left alone until it can be final. What a living owner holds for a
        minute longer than it can need is claimed too: it knows nothing of it, as where the commit
        of an intent was in doubt and came late.

        Raises:
            NotSentError: Postgres did not do it.
        """
        rows = await self._database.recovering.run(
            partial(_claim, owner, limit, self._final_after_s)
        )
        return [_open_alteration(row) for row in rows]

    async def open_intents(self) -> OpenIntents:
        """Count the entities of all processes that have no definite outcome yet.

        Raises:
            NotSentError: The log cannot be read.
        """
        return await self._database.recovering.run(_count)

    async def record_recovery(self, recovered: Recovered) -> None:
        """Add what was found to the log; what is final frees the slot.

        Repeating it is harmless. What was only observed is left out once more is known.

        Raises:
            NotSentError: Not recorded, or not known to be; repeating it is safe.
            NotFoundError: The log has no such entity.
            ValueError: The log has another conclusion for the entity; it stands.
        """
        await self._database.recovering.run(partial(_record, recovered))


async def _count(lease: Lease) -> OpenIntents:
    row = (await lease.connection.execute(_OPEN)).one()
    return OpenIntents(row.number, row.oldest_s, row.quarantined)


async def _beat(owner: str, lease: Lease) -> None:
    await lease.connection.execute(_BEAT, {"owner": owner})


async def _claim(owner: str, number: int, final_after_s: float, lease: Lease) -> Sequence[Row[Any]]:
    values = {"owner": owner, "number": number, "final_after": final_after_s}
    rows: Sequence[Row[Any]] = (await lease.connection.execute(_CLAIM, values)).all()
    return rows


def _open_alteration(row: Row[Any]) -> OpenAlteration:
    """What the owner knew last of the values before is better than what the intent says."""
    audited = audit_entity(json.loads(row.intent))
    if row.outcome is not None:
        before = values_from_json(json.loads(row.outcome)["result"]["before"])
        audited = replace(audited, before=audited.before if before is None else before)
    return OpenAlteration(
        alteration_id=str(row.alteration_id),
        audited=audited,
        cluster_id=row.cluster_id,
        broker_id=row.broker_id,
        age_s=row.age_s,
        quarantined=row.state == "quarantined",
        observed=row.observed,
    )


async def _record(recovered: Recovered, lease: Lease) -> None:
    place = {"alteration_id": UUID(recovered.alteration_id), "ordinal": recovered.ordinal}
    observed = (await lease.connection.execute(_HOLD, place)).scalar()
    told = await stories(recovered.alteration_id, [recovered.ordinal], lease)
    if not told:
        raise NotFoundError(
            f"The log has no entity {recovered.ordinal} of {recovered.alteration_id}."
        )
    if _is_known(recovered, told[0], already_observed=bool(observed)):
        return
    await log_time(lease)
    if recovered.final:
        results = {recovered.ordinal: recovered.result}
        await close_slots(closing(recovered.alteration_id, results), lease)
    else:
        await lease.connection.execute(_OBSERVED, place)
    await copy_rows(lease, [recovery_row(told[0], recovered)], 1)


def _is_known(recovered: Recovered, story: Story, *, already_observed: bool) -> bool:
    if story.conclusion is None:
        return already_observed and not recovered.final
    known = json.loads(story.conclusion)["result"]["outcome"]
    if recovered.final and known != recovered.result.outcome:
        message = (
            f"the log says of {recovered.alteration_id}: entity {recovered.ordinal} is already "
            f"{known}, not {recovered.result.outcome.value}"
        )
        raise ValueError(message)
    return True
