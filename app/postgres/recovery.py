"""What recovery works on: entities without a certain outcome, claimed by one process at a time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from app.domain.alterations import AlterationResult, ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.postgres.audit_log import append
from app.postgres.payload import (
    Document,
    recovery_events,
    values_from_json,
    values_from_text,
)
from app.postgres.pool import SECONDS_PER_ROW, Database, Lease, Row
from app.postgres.records import change_from_json
from app.service.alterations.results import may_be_repeated
from app.service.ports.audit_log import OpenAlteration, OpenIntents, Recovered, RecoveryKey
from app.service.recovery import FINAL_AFTER_S
from app.service.runtime.tasks import merge_calls, off_loop

DOUBTFUL: Final = """
    select ended.alteration_id, start.document as start
    from (
      select received_at, alteration_id, ordinal, seq from audit_entity
      where verdict in ('refused', 'not_applied', 'unknown') and verdict <> 'applied' and seq > 0
        and at >= now() - interval '1 day'
      union
      select received_at, alteration_id, ordinal, seq
      from audit_event join audit_entity using (received_at, alteration_id, seq)
      where event_type in ('recovery', 'superseded')
        and occurred_at >= now() - make_interval(secs => %(within_s)s)
    ) as found
    join audit_entity_event as ended using (received_at, alteration_id, ordinal, seq)
    join audit_entity_event as start on start.received_at = ended.received_at
      and start.alteration_id = ended.alteration_id and start.ordinal = ended.ordinal
      and start.seq = 0
    where start.cluster_id = %(cluster_id)s
      and ended.occurred_at >= now() - make_interval(secs => %(within_s)s)
    order by ended.occurred_at desc, ended.seq desc
    """
"""The ends of the last ``within_s`` seconds that leave a doubt, newest first.

A day is the longest that we look back for the start of what ended just now; the conditions on
`verdict` are those of an index."""


def doubtful_alterations(
    rows: Sequence[Row], entities: frozenset[ClientQuotaEntity]
) -> Mapping[ClientQuotaEntity, Mapping[str, ClientQuotaAlteration]]:
    """Return what the rows say of these entities, once for each alteration."""
    found: dict[ClientQuotaEntity, dict[str, ClientQuotaAlteration]] = {}
    for row in rows:
        alteration = change_from_json(json.loads(row.start))
        if alteration.entity in entities:
            found.setdefault(alteration.entity, {}).setdefault(str(row.alteration_id), alteration)
    return found


_LIMITS: Final = {
    "late_after": 2.0,
    "dead_after": 5.0,
    "forgotten_after": 60.0,
    "claimed_for": 15.0,
}
"""In seconds: how long after the time of its handover an entity is claimed from an owner that is
dead, which is silent for so long, and from any other; and how long a claim holds."""

_CLAIM: Final = """
    with due as (
      select held.cluster_id, held.entity_hash
      from open_alteration as open cross join unnest(entity_hashes) as listed(entity_hash)
      join quota_entity as held on held.cluster_id = open.cluster_id
        and held.entity_hash = listed.entity_hash and held.alteration_id = open.alteration_id
      where open.cluster_id = %(cluster_id)s and not rests_on
        and (claimed_until is null or claimed_until < now() or claimed_by = %(owner)s)
        and (not observed or handed_over_by <= now() - make_interval(secs => %(final_after)s))
        and (quarantined or handed_over_by < now() - make_interval(secs => %(forgotten_after)s)
          or handed_over_by < now() - make_interval(secs => %(late_after)s) and not exists (
            select from worker
            where worker.cluster_id = held.cluster_id and worker.owner = held.owner
              and seen_at > now() - make_interval(secs => %(dead_after)s)))
      order by handed_over_by limit %(number)s
      for update of held skip locked
    )
    update quota_entity as held
    set claimed_by = %(owner)s, claimed_until = now() + make_interval(secs => %(claimed_for)s)
    from due
    where held.cluster_id = due.cluster_id and held.entity_hash = due.entity_hash
    returning 1
    """

_CLAIMED: Final = """
    select held.alteration_id, broker_id,
      case when version > 0 and changed_at < taken_at then held."values"
        when version = 0 and exists (select from drift_baseline as baseline
          where baseline.cluster_id = held.cluster_id and baseline.taken_at < held.taken_at)
        then '{}' end as last_audited,
      history.intent, history.outcome,
      extract(epoch from clock_timestamp() - handed_over_by)::float8 as age_s
    from held_entity as held
    cross join lateral (
      select max(document) filter (where seq = 0) as intent,
        max(document) filter (where event_type = 'outcome') as outcome
      from audit_entity_event as event
      where event.received_at = held.received_at and event.alteration_id = held.alteration_id
        and event.ordinal = held.ordinal
    ) as history
    where held.cluster_id = %(cluster_id)s
      and claimed_by = %(owner)s
      and claimed_until = now() + make_interval(secs => %(claimed_for)s)
      and history.intent is not null
    order by held.received_at, held.alteration_id, held.ordinal
    """
"""``now()`` is the same time throughout a transaction: these are the claims just made.

An entity without a state of a cluster that is watched had no values. What was stored under the lock
is no earlier state: the first round of the watch may come after the alteration.
"""


def _open_alteration(row: Row) -> OpenAlteration:
    """Only what the owner has recorded with its outcome was read under the lock."""
    result = {} if row.outcome is None else json.loads(row.outcome)["result"]
    before = values_from_json(result.get("before"))
    change = replace(change_from_json(json.loads(row.intent)), before=before)
    return OpenAlteration(
        alteration_id=str(row.alteration_id),
        change=change,
        broker_id=row.broker_id,
        age_s=row.age_s,
        last_audited=None if row.last_audited is None else values_from_text(row.last_audited),
    )


async def record_found(recovered: Sequence[Recovered], lease: Lease) -> Mapping[RecoveryKey, str]:
    """Record findings, one for each entity; return why some were left as they are."""
    found = {finding.key: finding for finding in recovered}
    final: dict[str, list[AlterationResult]] = {alteration_id: [] for alteration_id, _ in found}
    for finding in found.values():
        if finding.final:
            final[finding.alteration_id].append(finding.result)
    frees = {key: may_be_repeated(results, found=True) for key, results in final.items()}
    appended = await append(list(recovery_events(found.values())), lease, frees)
    reasons = {key: _objection(found[key], record) for key, record in appended.refused.items()}
    return {key: reason for key, reason in reasons.items() if reason}


def _objection(finding: Recovered, record: Document | None) -> str | None:
    """Say why the log did not take this finding, or null: it has it already."""
    if record is None:
        return f"the log has no entity {finding.ordinal} of {finding.alteration_id}"
    outcome = record["result"]["outcome"]
    if not finding.final or outcome == finding.result.outcome:
        return None
    return (
        f"the log says of {finding.alteration_id}: entity {finding.ordinal} is already {outcome}, "
        f"not {finding.result.outcome.value}"
    )


_BEAT: Final = """
    with beating as (
      select cluster_id, owner
      from unnest(%(clusters)s::text[], %(owners)s::text[]) as each(cluster_id, owner)
    ), gone as (delete from worker where seen_at < clock_timestamp() - interval '1 day'
      and (cluster_id, owner) not in (select cluster_id, owner from beating))
    insert into worker (cluster_id, owner, seen_at)
    select cluster_id, owner, clock_timestamp() from beating
    on conflict (cluster_id, owner) do update set seen_at = excluded.seen_at
    """

_GIVE_BACK: Final = """
    update quota_entity as held set claimed_by = null, claimed_until = null
    from open_alteration as open cross join unnest(entity_hashes) as listed(entity_hash)
    where open.cluster_id = %(cluster_id)s and held.cluster_id = open.cluster_id
      and held.entity_hash = listed.entity_hash and held.alteration_id = open.alteration_id
      and claimed_by = %(owner)s
    """

_OPEN: Final = """
    select cluster_id, count(*) as number, count(*) filter (where quarantined) as quarantined,
      coalesce(extract(epoch from clock_timestamp() - min(taken_at)), 0)::float8 as oldest_s
    from held_entity
    where cluster_id = any(%(clusters)s) and not rests_on
    group by cluster_id
    """

_NONE_OPEN: Final = OpenIntents(0, 0.0, 0)


class PostgresRecovery:
    """The port ``RecoveryJournal`` on Postgres, with connections of its own.

    What all clusters of a process ask in each round is one statement for all of them.

    Args:
        database: The service's connections.
        final_after_s: When an observed entity is due again, in seconds after the sending.
    """

    def __init__(self, database: Database, *, final_after_s: float = FINAL_AFTER_S) -> None:
        self._database = database
        self._final_after_s = final_after_s
        self._beats = merge_calls(self._beat)
        self._opens = merge_calls(self._open)

    async def beat(self, cluster_id: str, owner: str) -> None:
        """See ``RecoveryJournal``: whoever is silent for 5 s is taken for dead."""
        await self._beats.submit((cluster_id, owner))

    async def _beat(self, beating: Sequence[tuple[str, str]]) -> Sequence[None]:
        clusters, owners = zip(*sorted(set(beating)), strict=True)
        values = {"clusters": list(clusters), "owners": list(owners)}
        await self._database.recovering.rows(_BEAT, values)
        return [None] * len(beating)

    async def claim_open(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[OpenAlteration]:
        """Claim for 15 s what nobody else has claimed, the oldest first, in one statement.

        What was observed is left alone until it can be final. What a living owner holds for a
        minute longer than it can need is claimed too: it knows nothing of it, as where the commit
        of an intent was in doubt and came late.
        """
        limits = {**_LIMITS, "number": limit, "final_after": self._final_after_s}
        values = {"cluster_id": cluster_id, "owner": owner, **limits}

        async def claim(lease: Lease) -> Sequence[Row]:
            claimed = len(await lease.rows(_CLAIM, values))
            if not claimed:
                return ()
            await lease.extend(claimed * SECONDS_PER_ROW)
            return await lease.rows(_CLAIMED, values)

        rows = await self._database.recovering.run(claim)
        return await off_loop(len(rows), list, map(_open_alteration, rows))

    async def give_back(self, cluster_id: str, owner: str) -> None:
        """See ``RecoveryJournal``; where it fails others wait until the claims end."""
        values = {"cluster_id": cluster_id, "owner": owner}
        await self._database.recovering.rows(_GIVE_BACK, values)

    async def open_intents(self, cluster_id: str) -> OpenIntents:
        """See ``RecoveryJournal``."""
        return await self._opens.submit(cluster_id)

    async def _open(self, clusters: Sequence[str]) -> Sequence[OpenIntents]:
        rows = await self._database.recovering.rows(_OPEN, {"clusters": list(set(clusters))})
        found = {
            row.cluster_id: OpenIntents(row.number, row.oldest_s, row.quarantined) for row in rows
        }
        return [found.get(cluster_id, _NONE_OPEN) for cluster_id in clusters]

    async def record_recovery(self, recovered: Sequence[Recovered]) -> Mapping[RecoveryKey, str]:
        """See ``RecoveryJournal``; an observation is left out once there is a result."""
        return await self._database.recovering.run(partial(record_found, recovered))
