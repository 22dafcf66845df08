"""The rules of a request's own fields; those of quotas are the domain's."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.errors import Violation
from app.http.json_pointer import child
from app.http.reading import ObjectReader
from app.http.strict_json import shown
from app.service.alterations.alteration_command import Wait
from app.service.reading.resolve import Identity

DEFAULT_WAIT_MS: Final = 5_000
MAX_WAIT_MS: Final = 60_000
MAX_AGE_MS: Final = 3_600_000

MAX_IDENTITIES: Final = 10_000
MAX_REASON_CHARACTERS: Final = 1_000

_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


def identity_violations(identity: Identity, place: Callable[[str], str]) -> Iterator[Violation]:
    """Yield every broken rule of an identity.

    Args:
        identity: As read.
        place: The pointer or parameter for a member's name; for ``""`` that of the identity.
    """
    if identity.ip is None:
        if identity.user is None:
            detail = "Name a user (an unauthenticated connection is ANONYMOUS), or an ip."
            yield Violation(place("user"), "identity-without-user", detail)
    else:
        if identity.user is not None or identity.client_id is not None:
            detail = "An identity is an ip, or a user with or without a client-id, not both."
            yield Violation(place(""), "invalid-identity-combination", detail)
        if canonical_ip(identity.ip) is None:
            detail = f"{shown(identity.ip)} is not a literal IPv4 or IPv6 address."
            yield Violation(place("ip"), "not-an-ip-address", detail)
    for name, text in (("user", identity.user), ("client-id", identity.client_id)):
        if text is not None and _has_lone_surrogate(text):
            yield Violation(place(name), "lone-surrogate", _LONE_SURROGATE)


_LONE_SURROGATE: Final = "This must be Unicode text; it holds half of a surrogate pair."


def read_integer(reader: ObjectReader, name: str, *, default: int, maximum: int) -> int:
    """Read a whole number from 0 to ``maximum``; note another one as a broken rule."""
    number = reader.number(name)
    if number is None:
        return default
    if Decimal(0) <= number <= maximum and number == number.to_integral_value():
        return int(number)
    detail = f"{name} must be a whole number from 0 to {maximum}."
    reader.reading.breaks(child(reader.pointer, name), "out-of-range", detail)
    return default


def read_wait(reader: ObjectReader) -> Wait:
    """Read ``wait``; note an unknown word as a broken rule."""
    word = reader.text("wait")
    if word is None:
        return Wait.READABLE
    if word in set(Wait):
        return Wait(word)
    detail = f"{shown(word)} is unknown; wait is one of {', '.join(Wait)}."
    reader.reading.breaks(child(reader.pointer, "wait"), "unknown-word", detail)
    return Wait.READABLE


def read_reason(reader: ObjectReader) -> str | None:
    """Read ``reason``; null is the same as no reason. Note one that cannot be kept."""
    if reader.members.get("reason") is None:
        return None
    reason = reader.text("reason")
    if reason is None:
        return None
    for code, detail in _reason_problems(reason):
        reader.reading.breaks(child(reader.pointer, "reason"), code, detail)
    return reason


def _reason_problems(reason: str) -> Iterator[tuple[str, str]]:
    if len(reason) > MAX_REASON_CHARACTERS:
        detail = f"The reason has {len(reason)} characters; at most {MAX_REASON_CHARACTERS}."
        yield "reason-too-long", detail
    if "\0" in reason:
        yield "nul-in-reason", "The reason cannot contain U+0000: the audit log cannot keep it."
    if _has_lone_surrogate(reason):
        yield "lone-surrogate", _LONE_SURROGATE


def _has_lone_surrogate(text: str) -> bool:
    return not text.isascii() and bool(_HALF_OF_A_PAIR.search(text))
