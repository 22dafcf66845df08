"""Page tokens: a position in the answer to one query, which any process can read."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from app.domain.errors import BadPageTokenError
from app.http.encoding import json_bytes

_DIGEST_BYTES: Final = 16


def query_fingerprint(route: str, conditions: Mapping[str, Any]) -> str:
    """Return what a token is bound to: the route and every condition but page and token.

    Put the principal in where rows depend on it.
    """
    return hashlib.sha256(
        json.dumps([route, conditions], sort_keys=True, default=str).encode()
    ).hexdigest()


def page_token(position: object, fingerprint: str) -> str:
    """Return the token for a position (plain JSON values) in the answer to a query.

    Nothing in it is secret: its digest finds errors of copying and tokens of other queries, and the
    caller's rights are checked for each page.
    """
    body = json_bytes(position)
    return _text(_digest(body, fingerprint) + body)


def read_page_token(token: str, fingerprint: str) -> Any:
    """Return the position that a token holds; a caller may have made it up.

    Raises:
        BadPageTokenError: It cannot be read, or is of another query.
    """
    raw = _raw(token)
    digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if digest != _digest(body, fingerprint):
        raise BadPageTokenError
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadPageTokenError from None


def _digest(body: bytes, fingerprint: str) -> bytes:
    return hashlib.sha256(fingerprint.encode() + b"\n" + body).digest()[:_DIGEST_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _raw(token: str) -> bytes:
    """Decode; text that is no token becomes bytes that no digest fits."""
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        return b""
    return raw if _text(raw) == token else b""
