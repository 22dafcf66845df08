"""Rows without their times, which the database fills in when it has them, and seals.

Where a time belongs stands a mark that nobody can guess, so that no text of a caller is one.
"""

import secrets
from collections.abc import Iterable
from typing import Any, Final

from app.postgres.canonical import canonical_json
from app.postgres.event_rows import EventRow

_BYTES: Final = ("user_name", "client_id_name", "ip_name")


def new_mark() -> str:
    """Return a mark for one time in the rows of one transaction."""
    return secrets.token_hex(16)


def open_rows(rows: Iterable[EventRow]) -> str:
    """Return rows whose times are marks as JSON; names are hexadecimal, seals are left out."""
    return canonical_json([_members(row) for row in rows])


def _members(row: EventRow) -> dict[str, Any]:
    members = {name: value for name, value in row._asdict().items() if value is not None}
    for name in ("leaf_hash", "at", "occurred_at"):
        del members[name]
    for name in _BYTES:
        if name in members:
            members[name] = members[name].hex()
    return members
