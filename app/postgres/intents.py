"""Intents: key, locks, record and last state in one transaction, for one or several alterations.

What is not granted to several together is tried alone, which can wait and can say why not.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import chain
from typing import Any, Final
from uuid import UUID

import psycopg

from app.domain.entities import ClientQuotaEntity
from app.postgres.bulk import MANY, SECONDS_PER_ROW, committed, copy_rows, log_time
from app.postgres.entity_locks import (
    Hashes,
    by_hash,
    entity_hash,
    last_states,
    take_over,
    take_slots,
    values_of,
)
from app.postgres.follow_up_events import read_histories, superseded_rows
from app.postgres.idempotency import RENEW_KEY, take_key
from app.postgres.ownership import claim_ownership
from app.postgres.payload import (
    EventRow,
    canonical_json,
    intent_rows,
    new_mark,
    open_rows,
    time_text,
)
from app.postgres.pool import Lease
from app.service.ports.audit_log import AuditRequest, Claim, Intent, LastState
from app.service.ports.brokers import STANDSTILL_S
from app.service.runtime.clock import time_of


async def write_intent(request: AuditRequest, claim: Claim, lease: Lease) -> Intent:
    """Write an intent with everything that it claims.

    The log's time is taken when the slots are held: whoever had them has concluded, whoever wants
    them must wait. So the order of ``at`` is the order of the cluster.

    Raises:
        KeyTakenError: The key was used before.
        EntityBusyError: A slot is taken.
        OwnerConflictError: Another owner holds a key that a plan would change.
        ExpectationFailedError: Owners have changed since the plan was made.
    """
    if claim.key is not None:
        await take_key(claim.key, request.alteration_id, lease)
    hashes = await _hashes(claim.entities)
    ended: Sequence[EventRow] = ()
    if hashes and claim.supersedes is not None:
        ended = await _superseded(request, claim.supersedes, hashes, lease)
    held = await _hashes((*claim.entities, *claim.rests_on)) if claim.rests_on else hashes
    if held:
        await take_slots(request, claim, held, lease)
    if hashes and claim.ownership is not None:
        await claim_ownership(request, claim.ownership, hashes, lease)
    at = await log_time(lease)
    known = await last_states(request.cluster_id, held, lease)
    number = len(ended) + number_of_rows(request)
    await copy_rows(lease, chain(ended, intent_rows(request, time_text(at))), number)
    return Intent(at.astimezone(UTC), known)


def number_of_rows(request: AuditRequest) -> int:
    """Return how many rows a request is at its start."""
    return 1 + len(request.entities) + len(request.local_refusals)


async def _hashes(entities: Sequence[ClientQuotaEntity]) -> Hashes:
    if len(entities) < MANY:
        return by_hash(entities)
    return await asyncio.to_thread(by_hash, entities)


async def _superseded(
    request: AuditRequest, superseded: str, hashes: Hashes, lease: Lease
) -> Sequence[EventRow]:
    ordinals = await take_over(request, superseded, hashes, lease)
    if not ordinals:
        return ()
    histories = await read_histories([(superseded, ordinal) for ordinal in ordinals], lease)
    await lease.connection.execute(RENEW_KEY, {"alteration_id": UUID(superseded)})
    return list(superseded_rows(histories, request.alteration_id))


_RECORD: Final = """
    select at, granted, known from record_intents(%(ids)s, %(keys)s::json, %(slots)s::json,
      %(events)s::json, %(handed_over_within)s, %(mark)s)
    """


class BatchRejectedError(Exception):
    """The transaction failed for a reason that is not everybody's; each is to be tried alone."""


@dataclass(frozen=True, slots=True)
class PendingIntent:
    """An intent that is to be written."""

    request: AuditRequest
    claim: Claim

    @property
    def can_share(self) -> bool:
        """Whether others may be written with it: it is small, and claims only its own entities."""
        return (
            self.claim.supersedes is None
            and self.claim.ownership is None
            and not self.claim.rests_on
            and number_of_rows(self.request) < MANY
        )


class IntentBatch:
    """The drafts of one transaction, while it fills: no entity and no key is there twice."""

    def __init__(self) -> None:
        self._claimed: set[object] = set()
        self._rows = 0
        self._closed = False

    def __call__(self, draft: PendingIntent) -> bool:
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


async def write_intents(drafts: Sequence[PendingIntent], lease: Lease) -> list[Intent | None]:
    """Write those that get their keys and slots at once, and commit; null for the others.

    As for one alone, the log's time is taken when the slots are held.

    Raises:
        BatchRejectedError: Somebody else holds a lock on one of the rows; nothing was written.
    """
    wanted = [_Wanted.of(draft) for draft in drafts]
    await lease.extend(sum(number_of_rows(one.request) for one in drafts) * SECONDS_PER_ROW)
    try:
        ((at, granted, known),) = await committed(_RECORD, _parameters(wanted), lease)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise BatchRejectedError from error
    states = {
        (cluster_id, bytes.fromhex(digest)): LastState(values_of(stored), age_s)
        for cluster_id, digest, stored, age_s in known or ()
    }
    lucky = set(granted)
    return [
        Intent(at.astimezone(UTC), one.states_of(states)) if one.id in lucky else None
        for one in wanted
    ]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A draft, and the hashes of its entities."""

    id: UUID
    draft: PendingIntent
    hashes: Sequence[bytes]

    @classmethod
    def of(cls, draft: PendingIntent) -> "_Wanted":
        hashes = [entity_hash(one) for one in draft.claim.entities]
        return cls(UUID(draft.request.alteration_id), draft, hashes)

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
        ordinals = {one.alteration.entity: one.ordinal for one in request.entities}
        for entity, digest in zip(self.draft.claim.entities, self.hashes, strict=True):
            yield {
                "cluster_id": request.cluster_id,
                "entity_hash": digest.hex(),
                "alteration_id": str(self.id),
                "ordinal": ordinals[entity],
                "received_at": time_of(request.alteration_id).isoformat(),
                "owner": self.draft.claim.owner,
                "broker_id": request.broker_id,
            }

    def states_of(self, known: Mapping[tuple[str, bytes], LastState]) -> Mapping[Any, LastState]:
        cluster_id = self.draft.request.cluster_id
        pairs = zip(self.draft.claim.entities, self.hashes, strict=True)
        return {
            entity: known[cluster_id, digest]
            for entity, digest in pairs
            if (cluster_id, digest) in known
        }


def _parameters(wanted: Sequence[_Wanted]) -> Mapping[str, Any]:
    slots = [slot for one in wanted for slot in one.slots()]
    mark = new_mark()
    rows = chain.from_iterable(intent_rows(one.draft.request, mark) for one in wanted)
    return {
        "ids": [one.id for one in wanted],
        "keys": canonical_json([one.key() for one in wanted if one.draft.claim.key is not None]),
        "slots": canonical_json(slots),
        "events": open_rows(rows),
        "handed_over_within": STANDSTILL_S + max(one.draft.claim.send_within_s for one in wanted),
        "mark": mark,
    }
