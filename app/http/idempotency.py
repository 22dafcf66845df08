"""``Idempotency-Key`` and ``Supersede``: the headers that tie a request to an earlier one.

Source: the IETF draft "The Idempotency-Key HTTP Header Field".
"""

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from starlette.datastructures import Headers

from app.domain.errors import UnreadableRequestError, Violation
from app.http.strict_json import JsonValue
from app.service.alterations.command import IdempotencyKey

KEY_HEADER: Final = "Idempotency-Key"
SUPERSEDE_HEADER: Final = "Supersede"
REPLAYED_HEADER: Final = "Idempotent-Replayed"

LONGEST_KEY: Final = 255
_BLANKS: Final = " \t"
_PRINTABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_QUOTED: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ALTERATION_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def read_key(headers: Headers, route: str, body: JsonValue) -> IdempotencyKey | None:
    """Return the key with the fingerprint of what is asked, or null where none is given.

    Args:
        headers: Of the request; the key may be bare or a quoted string.
        route: The route's template, which is part of what is asked.
        body: As read; two bodies that are equal as JSON have the same fingerprint.

    Raises:
        UnreadableRequestError: Several keys, or one that is not 1-255 printable ASCII characters.
    """
    given = headers.getlist(KEY_HEADER)
    if not given:
        return None
    text = _unquoted(given[0].strip(_BLANKS))
    if len(given) > 1 or not 1 <= len(text) <= LONGEST_KEY or not _PRINTABLE.fullmatch(text):
        detail = f"Give one {KEY_HEADER} of 1 to {LONGEST_KEY} printable ASCII characters."
        raise _unreadable(KEY_HEADER, "bad-idempotency-key", detail)
    return IdempotencyKey(text, fingerprint(route, body))


def read_superseded(headers: Headers) -> str | None:
    """Return the id of the alteration that this one takes over from, or null.

    Raises:
        UnreadableRequestError: Not one alteration id.
    """
    given = headers.getlist(SUPERSEDE_HEADER)
    if not given:
        return None
    text = given[0].strip(_BLANKS).lower()
    if len(given) == 1 and _ALTERATION_ID.fullmatch(text):
        return text
    detail = f"{SUPERSEDE_HEADER} takes the id of one alteration."
    raise _unreadable(SUPERSEDE_HEADER, "bad-supersede", detail)


def fingerprint(route: str, body: JsonValue) -> bytes:
    """Return the SHA-256 of what is asked.

    The order of members, blanks and the form of numbers do not count.
    """
    text = json.dumps([route, _canonical(body)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


def _canonical(value: JsonValue) -> Any:
    """Mark numbers, so that 1, 1.0 and 1e0 are equal and "1" is not."""
    if isinstance(value, Decimal):
        return {"number": _number(value)}
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    if isinstance(value, Mapping):
        return {"object": {name: _canonical(one) for name, one in value.items()}}
    return value


def _number(value: Decimal) -> str:
    """Return one text for each value, exact to the last digit."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped or not isinstance(exponent, int):
        return "0"
    return f"{'-' if sign else ''}{stripped}e{exponent + len(text) - len(stripped)}"


def _unquoted(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text


def _unreadable(header: str, code: str, detail: str) -> UnreadableRequestError:
    return UnreadableRequestError(detail, code=code, violations=[Violation(header, code, detail)])
