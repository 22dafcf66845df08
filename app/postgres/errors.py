"""The errors of Postgres as the few that callers see."""

import logging
import time
from collections.abc import Mapping
from typing import Final

import psycopg

from app.domain.errors import NotSentError, QuotaError

logger = logging.getLogger(__name__)

FAILURES: Final = (psycopg.Error, OSError, TimeoutError)
"""Everything that a database call raises when the database is to blame."""

READ_ONLY: Final = "25006"

ENDED: Final = "57014"


_SAME_AGAIN_S: Final = 60.0
"""A cause is logged at most once in so long: background work meets it several times a second."""

_NO_ANSWER: Final = "Postgres cannot be reached or does not answer; check that it runs"

_MIGRATE: Final = "run `kafka-quota-service migrate`"

_CAUSES: Final[Mapping[str, str]] = {
    "23514": f"the log has no partition for the present month; {_MIGRATE}",
    READ_ONLY: "Postgres is read-only; check that QUOTAS_DATABASE_URL names the primary",
    "28000": "Postgres refuses the login; check QUOTAS_DATABASE_URL",
    "28P01": "Postgres refuses the password; check QUOTAS_DATABASE_URL",
    "3D000": "the database does not exist; check QUOTAS_DATABASE_URL",
    "42501": f"the service's role lacks a right on the log; {_MIGRATE}",
    "42703": f"the log's table is of another version; {_MIGRATE}",
    "42P01": f"the log's table does not exist; {_MIGRATE}",
    "53100": "the disk of Postgres is full",
    "53200": "Postgres is out of memory",
    "53300": "Postgres has no connection left; check max_connections",
    "FATAL": "Postgres refuses the connection; check QUOTAS_DATABASE_URL",
    "55P03": "the log's table is locked by another session",
    ENDED: "Postgres did not finish in time",
    "57P01": "Postgres is shutting down",
    "57P02": "Postgres has crashed and is restarting",
    "57P03": "Postgres is starting or shutting down",
}
"""Why, by SQLSTATE. Source: Postgres, appendix A."""

_FAULTS: Final = ("22", "23")
"""Classes of SQLSTATE: data that cannot be computed with, and rows that break a constraint."""

_REFUSALS: Final = (
    ("password authentication failed", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("too many", "53300"),
    ("remaining connection slots", "53300"),
    ("the database system is", "57P03"),
    ('role "', "28000"),
    ('database "', "3D000"),
    ("FATAL:", "FATAL"),
)
"""SQLSTATE by the text of a refused connection, for which libpq has no SQLSTATE.

The database system is starting up, shutting down, in recovery mode, or not (yet) accepting
connections. Source: ProcessStartupPacket of Postgres.
"""

_logged_at: Final[dict[str, float]] = {}


class CommitInDoubtError(NotSentError):
    """The commit was begun and not answered: the rows may be there."""


def failure(error: BaseException | None, *, commits: bool = False) -> QuotaError:
    """Translate a failure; the raw text goes to the log, not to the caller.

    What Postgres refuses to compute or to store is no outage: it would do so each time.

    Args:
        error: What was raised; null where the server was silent.
        commits: Whether the commit was begun.
    """
    state = sql_state(error)
    if state is not None and state.startswith(_FAULTS) and not _is_partition_missing(error):
        logger.error("Postgres refuses what this service asks: %s %s", state, first_line(error))
        return QuotaError("A fault of this service; report the request id.")
    cause = _CAUSES.get(state or "", _NO_ANSWER if state is None else f"Postgres says {state}")
    _log(cause, error)
    kind = CommitInDoubtError if commits else NotSentError
    return kind(
        f"The audit log is unavailable, so nothing was sent: {cause}.", code="audit-log-unavailable"
    )


def query_too_slow(within_s: float) -> NotSentError:
    """Return the error for a read that Postgres has ended because it took too long."""
    detail = f"The log was not read within {within_s:g} s; ask for less, or for a shorter time."
    return NotSentError(detail, code="query-too-slow")


def _is_partition_missing(error: BaseException | None) -> bool:
    """Tell whether a row was refused by no constraint: Postgres counts that as a check."""
    return isinstance(error, psycopg.errors.CheckViolation) and not error.diag.constraint_name


def sql_state(error: BaseException | None) -> str | None:
    """Return the SQLSTATE, or null where the server did not send one."""
    if not isinstance(error, psycopg.Error):
        return None
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        text = str(error)
        return next(
            (state for words, state in _REFUSALS if "FATAL:" in text and words in text), None
        )
    return error.sqlstate


def _log(cause: str, error: BaseException | None) -> None:
    now = time.monotonic()
    if now - _logged_at.get(cause, float("-inf")) >= _SAME_AGAIN_S:
        _logged_at[cause] = now
        logger.warning("the audit log is unavailable: %s (%s)", cause, first_line(error))


def first_line(error: BaseException | None) -> str:
    """Return the first line of what Postgres says."""
    lines = str(error or "no answer in time").splitlines()
    return lines[0] if lines else type(error).__name__
