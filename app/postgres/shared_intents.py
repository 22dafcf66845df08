"""The intents of several alterations in one transaction; each is granted or not by itself.

What is not granted here is tried alone, by ``intents``, which can wait and can say why not.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, cast
from uuid import UUID

import psycopg

from app.postgres.copying import DURABLE, MANY, SECONDS_PER_ROW, copy_rows
from app.postgres.event_rows import EventRow, intent_rows
from app.postgres.intents import number_of_rows
from app.postgres.leases import Lease
from app.postgres.states import entity_hash, values_of
from app.service.alterations.alteration_sending import SEND_BY_S
from app.service.audit_records import AuditRequest
from app.service.identifiers import time_of
from app.service.journal_ports import Claim, Intent, KnownState

_TAKE_KEYS: Final = """
    insert into idempotency (key_hash, fingerprint, alteration_id, expires_at)
    select decode(key_hash, 'hex'), decode(fingerprint, 'hex'), alteration_id,
      clock_timestamp() + interval '24 hours'
    from json_to_recordset(%(keys)s::json)
      as wanted(key_hash text, fingerprint text, alteration_id uuid)
    order by key_hash
    on conflict (key_hash) do update set
      fingerprint = excluded.fingerprint,
      alteration_id = excluded.alteration_id,
      expires_at = excluded.expires_at
    where idempotency.expires_at <= clock_timestamp()
    returning alteration_id
    """

_TAKE_SLOTS: Final = """
    with clock as materialized (select clock_timestamp() as now)
    insert into entity_slot (cluster_id, entity_hash, alteration_id, ordinal, received_at, owner,
      broker_id, taken_at, handed_over_by)
    select cluster_id, decode(entity_hash, 'hex'), alteration_id, ordinal, received_at, owner,
      broker_id, now, now + make_interval(secs => %(handed_over_within)s)
    from clock, json_to_recordset(%(slots)s::json) as wanted(cluster_id text, entity_hash text,
      alteration_id uuid, ordinal smallint, received_at timestamptz, owner text, broker_id int)
    order by entity_hash
    on conflict (cluster_id, entity_hash) do nothing
    returning alteration_id
    """

_KNOWN: Final = """
    select cluster_id, entity_hash, "values",
      extract(epoch from clock_timestamp() - updated_at)::float8
    from entity_state
    where cluster_id = any(%(clusters)s) and entity_hash = any(%(hashes)s)
    """

_GIVE_BACK: Final = (
    "delete from entity_slot where alteration_id = any(%(ids)s)",
    "delete from idempotency where alteration_id = any(%(ids)s)",
)

_NO_WAITING: Final = "select set_config('lock_timeout', '50ms', true)"
"""Who has to wait for another process does so alone."""

_TIME: Final = f"select clock_timestamp(), {DURABLE}"


class AloneError(Exception):
    """The transaction failed for a reason that is not everybody's; each is to be tried alone."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An intent that is to be written."""

    request: AuditRequest
    claim: Claim

    @property
    def can_share(self) -> bool:
        """Whether others may be written with it: it is small, and takes nothing over."""
        return (
            self.claim.supersedes is None
            and self.claim.ownership is None
            and number_of_rows(self.request) < MANY
        )


class DraftsTogether:
    """The drafts of one transaction, while it fills: no entity and no key is there twice."""

    def __init__(self) -> None:
        self._claimed: set[object] = set()
        self._rows = 0
        self._closed = False

    def __call__(self, draft: Draft) -> bool:
        """Take one more in, if it fits."""
        key = draft.claim.key
        claimed = {*draft.claim.entities, *(() if key is None else (key.key_hash,))}
        rows = self._rows + number_of_rows(draft.request)
        fits = (
            draft.can_share
            and not self._closed
            and rows < MANY
            and self._claimed.isdisjoint(claimed)
        )
        if fits or not self._rows:
            self._claimed |= claimed
            self._rows, self._closed = rows, not draft.can_share
        return fits


async def write_intents(drafts: Sequence[Draft], lease: Lease) -> list[Intent | None]:
    """Write those that get their keys and slots at once; null for the others.

    As for one alone, the log's time is taken when the slots are held.

    Raises:
        AloneError: Somebody else holds a lock on one of the rows; nothing was written.
    """
    wanted = [_Wanted.of(draft) for draft in drafts]
    try:
        taken_keys, taken_slots, at, known = await _claim(wanted, lease)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise AloneError from error
    granted = [one for one in wanted if one.granted(taken_keys, taken_slots)]
    refused = [one.id for one in wanted if not one.granted(taken_keys, taken_slots)]
    if refused:
        for statement in _GIVE_BACK:
            await lease.driver.execute(statement, {"ids": refused})
    if granted:
        rows: Iterator[EventRow] = chain.from_iterable(
            intent_rows(one.draft.request, at) for one in granted
        )
        number = sum(number_of_rows(one.draft.request) for one in granted)
        await copy_rows(lease, rows, number)
    lucky = {one.id for one in granted}
    return [Intent(at, one.known_of(known)) if one.id in lucky else None for one in wanted]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A draft, and the hashes of its entities."""

    id: UUID
    draft: Draft
    hashes: Sequence[bytes]

    @classmethod
    def of(cls, draft: Draft) -> "_Wanted":
        hashes = [entity_hash(one) for one in draft.claim.entities]
        return cls(UUID(draft.request.alteration_id), draft, hashes)

    def granted(self, keys: Collection[UUID], slots: Mapping[UUID, int]) -> bool:
        has_key = self.draft.claim.key is None or self.id in keys
        return has_key and slots.get(self.id, 0) == len(self.hashes)

    def key(self) -> Mapping[str, Any]:
        key = self.draft.claim.key
        if key is None:
            return {}
        return {
            "key_hash": key.key_hash.hex(),
            "fingerprint": key.fingerprint.hex(),
            "alteration_id": str(self.id),
        }

    def slots(self) -> Iterator[Mapping[str, Any]]:
        request = self.draft.request
        places = {one.alteration.entity: one.ordinal for one in request.entities}
        for entity, digest in zip(self.draft.claim.entities, self.hashes, strict=True):
            yield {
                "cluster_id": request.cluster_id,
                "entity_hash": digest.hex(),
                "alteration_id": str(self.id),
                "ordinal": places[entity],
                "received_at": time_of(request.alteration_id).isoformat(),
                "owner": self.draft.claim.owner,
                "broker_id": request.broker_id,
            }

    def known_of(self, known: Mapping[tuple[str, bytes], KnownState]) -> Mapping[Any, KnownState]:
        cluster_id = self.draft.request.cluster_id
        pairs = zip(self.draft.claim.entities, self.hashes, strict=True)
        return {
            entity: known[cluster_id, digest]
            for entity, digest in pairs
            if (cluster_id, digest) in known
        }


async def _claim(
    wanted: Sequence[_Wanted], lease: Lease
) -> tuple[Collection[UUID], Mapping[UUID, int], datetime, Mapping[tuple[str, bytes], KnownState]]:
    """Take keys, then slots, then the time, then what is known: one journey to the server."""
    keys = [one.key() for one in wanted if one.draft.claim.key is not None]
    slots = [slot for one in wanted for slot in one.slots()]
    within = SEND_BY_S + lease.remaining() + len(slots) * SECONDS_PER_ROW
    hashes = [digest for one in wanted for digest in one.hashes]
    clusters = list({one.draft.request.cluster_id for one in wanted})
    driver = cast("psycopg.AsyncConnection[Any]", lease.driver)
    async with driver.pipeline():
        await driver.execute(_NO_WAITING)
        key_rows = await driver.execute(_TAKE_KEYS, {"keys": json.dumps(keys)}) if keys else None
        slot_rows = await driver.execute(
            _TAKE_SLOTS, {"slots": json.dumps(slots), "handed_over_within": within}
        )
        time_row = await driver.execute(_TIME)
        known_rows = await driver.execute(_KNOWN, {"clusters": clusters, "hashes": hashes})
        taken_keys = set() if key_rows is None else {id_ for (id_,) in await key_rows.fetchall()}
        taken_slots = Counter(id_ for (id_,) in await slot_rows.fetchall())
        ((at, _),) = await time_row.fetchall()
        known = {
            (cluster_id, bytes(digest)): KnownState(values_of(stored), age_s)
            for cluster_id, digest, stored, age_s in await known_rows.fetchall()
        }
    return taken_keys, taken_slots, at.astimezone(UTC), known
