"""The members of a request that say when what it sets is to end."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr

from app.domain.errors import Violation
from app.domain.expiry import DURATION_PATTERN, broken_expiry, read_duration
from app.http.models import quote, read_time
from app.http.validation import RequestBody, own_error
from app.service.runtime.clock import database_now

T = TypeVar("T")


def _check(read: Callable[[str], T]) -> AfterValidator:
    def check(text: str) -> str:
        try:
            read(text)
        except ValueError as error:
            raise own_error("wrong-type", f"{quote(text)} is {error}.") from None
        return text

    return AfterValidator(check)


ExpiresIn = Annotated[
    Annotated[str, _check(read_duration)] | None,
    Field(
        description=(
            "How long it is to hold, such as `90s`, `30m`, `4h` or `2d`: at least 60 s, at most 90 "
            "days. Then each key returns to what it had before, unless it was changed since."
        ),
        json_schema_extra={
            "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "null"}]
        },
    ),
]

ExpiresAt = Annotated[
    Annotated[str, _check(read_time)] | None,
    Field(
        description="When it is to end instead, at most 90 days from now. RFC 3339.",
        json_schema_extra={"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
    ),
]


def end_asked_for(
    expires_in: str | None, expires_at: str | None
) -> tuple[datetime | None, tuple[Violation, ...]]:
    """Return when it is to end, by the database's clock, or null; and what is wrong with that."""
    if expires_in is None and expires_at is None:
        return None, ()
    now = database_now()
    lasts = None if expires_in is None else read_duration(expires_in)
    end = None if expires_at is None else read_time(expires_at)
    if broken := tuple(broken_expiry(lasts, end, now)):
        return None, broken
    return end if lasts is None else now + lasts, ()


class Expiring(RequestBody):
    """Members of a body that asks for something that may end."""

    expires_in: ExpiresIn = None
    expires_at: ExpiresAt = None
    _end: datetime | None = PrivateAttr(None)

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked, by the names of an ``Alteration``."""
        return {"expires_at": self._end}

    def broken_rules(self) -> Iterator[Violation]:
        """Read the time, and yield what is wrong with it."""
        self._end, broken = end_asked_for(self.expires_in, self.expires_at)
        yield from broken
