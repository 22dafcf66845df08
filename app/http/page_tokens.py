"""Page tokens: signed, bound to the query that they continue, good for a while."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.domain.errors import UnreadableRequestError, Violation
from app.http.json_text import json_bytes

_SIGNATURE_BYTES: Final = 16


def query_fingerprint(route: str, conditions: Mapping[str, Any]) -> str:
    """Return what a token is bound to: the route and every condition but page and token.

    Args:
        route: The route's name, so that a token of one route is none of another.
        conditions: Plain values by name; put the principal in where rows depend on it.
    """
    return hashlib.sha256(
        json.dumps([route, conditions], sort_keys=True, default=str).encode()
    ).hexdigest()


class PageTokens:
    """Makes and reads page tokens.

    Args:
        secret: Known to every process that may be asked for the next page.
        max_age_s: How long a token is good, in seconds.
        now: The wall clock, in seconds since 1970.
    """

    def __init__(
        self, secret: bytes, *, max_age_s: float = 300.0, now: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._max_age_s = max_age_s
        self._now = now

    def make(self, position: Mapping[str, Any], fingerprint: str) -> str:
        """Return the token for a position (plain JSON values) in the answer to a query."""
        body = json_bytes([self._now(), dict(position)])
        return _text(self._signature(body, fingerprint) + body)

    def read(self, token: str, fingerprint: str) -> dict[str, Any]:
        """Return the position that a token holds.

        Raises:
            UnreadableRequestError: ``bad-page-token``: forged, of another query, or too old.
        """
        raw = _raw(token)
        signature, body = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(body, fingerprint)):
            raise _bad_token("This page token is not one of this query's.")
        made_at, position = json.loads(body)
        if not 0 <= self._now() - made_at <= self._max_age_s:
            raise _bad_token("This page token is too old.")
        return dict(position)

    @staticmethod
    def peek(token: str) -> dict[str, Any]:
        """Return the position that a text claims to hold, unproven; empty where it holds none."""
        try:
            _, position = json.loads(_raw(token)[_SIGNATURE_BYTES:])
            return dict(position)
        except (ValueError, TypeError, RecursionError):
            return {}

    def _signature(self, body: bytes, fingerprint: str) -> bytes:
        message = fingerprint.encode() + b"\n" + body
        return hmac.digest(self._secret, message, "sha256")[:_SIGNATURE_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _raw(token: str) -> bytes:
    """Decode; text that is no token becomes bytes that no signature fits."""
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        return b""
    return raw if _text(raw) == token else b""


def _bad_token(detail: str) -> UnreadableRequestError:
    again = f"{detail} Begin again without page_token."
    violation = Violation("page_token", "bad-page-token", again)
    return UnreadableRequestError(again, code="bad-page-token", violations=[violation])
