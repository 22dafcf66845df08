"""The intent: key, slots, record and last known state, in one transaction."""

import asyncio
from collections.abc import Sequence
from datetime import UTC
from itertools import chain
from uuid import UUID

from app.postgres.copying import MANY, copy_rows, log_time
from app.postgres.event_rows import EventRow, intent_rows, time_text
from app.postgres.keys import RENEW_KEY, take_key
from app.postgres.later_events import stories, superseded_rows
from app.postgres.leases import Lease
from app.postgres.plan_ownership import claim_ownership
from app.postgres.slots import take_over, take_slots
from app.postgres.states import Hashes, by_hash, known_states
from app.service.audit_records import AuditRequest
from app.service.journal_ports import Claim, Intent


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
    hashes = await _hashes(claim)
    ended: Sequence[EventRow] = ()
    if hashes and claim.supersedes is not None:
        ended = await _superseded(request, claim.supersedes, hashes, lease)
    if hashes:
        await take_slots(request, claim, hashes, lease)
    if hashes and claim.ownership is not None:
        await claim_ownership(request, claim.ownership, hashes, lease)
    at = await log_time(lease)
    known = await known_states(request.cluster_id, hashes, lease)
    number = len(ended) + number_of_rows(request)
    await copy_rows(lease, chain(ended, intent_rows(request, time_text(at))), number)
    return Intent(at.astimezone(UTC), known)


def number_of_rows(request: AuditRequest) -> int:
    """Return how many rows a request is at its start."""
    return 1 + len(request.entities) + len(request.local_refusals)


async def _hashes(claim: Claim) -> Hashes:
    if len(claim.entities) < MANY:
        return by_hash(claim.entities)
    return await asyncio.to_thread(by_hash, claim.entities)


async def _superseded(
    request: AuditRequest, superseded: str, hashes: Hashes, lease: Lease
) -> Sequence[EventRow]:
    ordinals = await take_over(request, superseded, hashes, lease)
    if not ordinals:
        return ()
    told = await stories([(superseded, ordinal) for ordinal in ordinals], lease)
    await lease.connection.execute(RENEW_KEY, {"alteration_id": UUID(superseded)})
    return list(superseded_rows(told, request.alteration_id))
