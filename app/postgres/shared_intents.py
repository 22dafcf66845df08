"""The intents of several alterations in one transaction; each is granted or not by itself.

What is not granted here is tried alone, by ``intents``, which can wait and can say why not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import chain
from typing import Any, Final
from uuid import UUID

import psycopg

from app.postgres.canonical import canonical_json
from app.postgres.copying import MANY, SECONDS_PER_ROW
from app.postgres.event_rows import intent_rows
from app.postgres.intents import number_of_rows
from app.postgres.journeys import committed
from app.postgres.leases import Lease
from app.postgres.open_rows import new_mark, open_rows
from app.postgres.states import entity_hash, values_of
from app.service.audit_records import AuditRequest
from app.service.cluster_ports import STANDSTILL_S
from app.service.identifiers import time_of
from app.service.journal_ports import Claim, Intent, KnownState

_RECORD: Final = """
    select at, granted, known from record_intents(%(ids)s, %(keys)s::json, %(slots)s::json,
      %(events)s::json, %(handed_over_within)s, %(mark)s)
    """


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
    """Write those that get their keys and slots at once, and commit; null for the others.

    As for one alone, the log's time is taken when the slots are held.

    Raises:
        AloneError: Somebody else holds a lock on one of the rows; nothing was written.
    """
    wanted = [_Wanted.of(draft) for draft in drafts]
    await lease.extend(sum(number_of_rows(one.request) for one in drafts) * SECONDS_PER_ROW)
    try:
        ((at, granted, known),) = await committed(_RECORD, _parameters(wanted), lease)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise AloneError from error
    states = {
        (cluster_id, bytes.fromhex(digest)): KnownState(values_of(stored), age_s)
        for cluster_id, digest, stored, age_s in known or ()
    }
    lucky = set(granted)
    return [
        Intent(at.astimezone(UTC), one.known_of(states)) if one.id in lucky else None
        for one in wanted
    ]


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
