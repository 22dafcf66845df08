"""The conclusions of several alterations in one transaction."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import psycopg

from app.postgres.closing import closing
from app.postgres.conclusions import ended_by
from app.postgres.copying import MANY, SECONDS_PER_ROW
from app.postgres.event_rows import outcome_rows
from app.postgres.journeys import committed
from app.postgres.keys import free_key_if_unused, may_be_repeated
from app.postgres.leases import Lease
from app.postgres.open_rows import new_mark, open_rows
from app.postgres.shared_intents import AloneError
from app.service.audit_records import AuditConclusion

_RECORD: Final = """
    select record_outcomes(%(definite)s::json, %(unknown)s::json, %(ids)s, %(events)s::json,
      %(at_mark)s, %(now_mark)s)
    """

_NOT_EVERYBODYS: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.NoDataFound,
    psycopg.errors.UniqueViolation,
)


class ConclusionsTogether:
    """The conclusions of one transaction, while it fills."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._results = 0

    def __call__(self, conclusion: AuditConclusion) -> bool:
        """Take one more in, if it fits."""
        results = self._results + len(conclusion.results)
        fits = results < MANY and conclusion.alteration_id not in self._ids
        if fits or not self._ids:
            self._ids.add(conclusion.alteration_id)
            self._results = results
        return fits


async def conclude_together(conclusions: Sequence[AuditConclusion], lease: Lease) -> None:
    """Write an outcome for each result, give up what was held, and commit.

    The slots are closed before the intents are looked at: what recovery has concluded shows then.

    Raises:
        AloneError: One of them has no intent, or another conclusion, or a row is locked; nothing
            was written.
    """
    await lease.extend(sum(len(one.results) for one in conclusions) * SECONDS_PER_ROW)
    to_be_repeated = [one for one in conclusions if may_be_repeated(one.results.values())]
    try:
        if not to_be_repeated:
            await committed(_RECORD, _parameters(conclusions), lease)
            return
        await lease.driver.execute(_RECORD, _parameters(conclusions))
    except _NOT_EVERYBODYS as error:
        raise AloneError from error
    for one in to_be_repeated:
        await free_key_if_unused(one.alteration_id, one.results.values(), lease)


def _parameters(conclusions: Sequence[AuditConclusion]) -> Mapping[str, Any]:
    at_mark, now_mark = new_mark(), new_mark()
    rows = chain.from_iterable(outcome_rows(one, at_mark, now_mark) for one in conclusions)
    return {
        **closing([ended_by(one) for one in conclusions]),
        "events": open_rows(rows),
        "at_mark": at_mark,
        "now_mark": now_mark,
    }
