"""``Authorization: Bearer``: a token of the file, or one that an identity provider signed.

Source: RFC 6750.
"""

import re
from functools import lru_cache
from typing import Any, Final

from starlette.types import Scope

from app.domain.entities import Caller
from app.domain.errors import UnauthenticatedError
from app.http.authentication import bearer_tokens, json_web_tokens
from app.http.authentication.bearer_tokens import BearerTokens
from app.http.authentication.hosts import host_of
from app.http.authentication.identity_headers import HARMLESS_NAMES
from app.http.authentication.json_web_tokens import JsonWebTokens
from app.http.authentication.presented import Presented
from app.http.errors import InvalidTokenError

_SCHEME: Final = re.compile(r"bearer(\s|$)", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_PLAIN_CREDENTIALS: Final = re.compile(rb"Bearer ([A-Za-z0-9._~+/-]+=*)")
_AUTHORIZATION: Final = b"authorization"
_NOTHING: Final[dict[str, Any]] = {}


class Bearer:
    """Turns a bearer token into a caller.

    Args:
        tokens: Those of the file; null where there is none.
        signed: Judges those of an identity provider; null where there is none.
    """

    def __init__(self, tokens: BearerTokens | None, signed: JsonWebTokens | None = None) -> None:
        self._tokens = tokens
        self._signed = signed

    name = bearer_tokens.AUTHENTICATION
    advice = "Send the header Authorization: Bearer with a token"
    scheme = "Bearer"

    def is_shown(self, presented: Presented) -> bool:
        """Tell whether the request has such a header."""
        given = presented.headers.get("authorization", "")
        return _SCHEME.match(given.strip()) is not None

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller.

        Raises:
            UnauthenticatedError: The address of the caller is not known.
            InvalidTokenError: Malformed, unknown or expired.
            NotSentError: The identity provider cannot be asked.
        """
        given = presented.headers.getlist("authorization")
        credentials = _CREDENTIALS.fullmatch(given[0].strip())
        if len(given) != 1 or credentials is None:
            raise InvalidTokenError("Send one header Authorization: Bearer with a token.")
        principal, method = await self._judged(credentials[1])
        return Caller(principal, host_of(presented.address), method)

    def plain_caller(self, scope: Scope) -> Caller | None:
        """Return the caller of a request that shows a token of the file and nothing else.

        Most requests do, and then ``authenticate`` says the same after many more questions. Null
        says only that these must be asked. The token is judged each time; nothing of it is kept.

        Args:
            scope: Of a request whose peer is no proxy.
        """
        if self._tokens is None or _shows_a_certificate(scope):
            return None
        credentials = None
        for name, value in scope["headers"]:
            if name not in HARMLESS_NAMES or (name == _AUTHORIZATION and credentials is not None):
                return None
            if name == _AUTHORIZATION:
                credentials = _PLAIN_CREDENTIALS.fullmatch(value)
                if credentials is None:
                    return None
        client = scope.get("client")
        if credentials is None or not client:
            return None
        principal = self._tokens.principal(credentials[1].decode("ascii"))
        return None if principal is None else _caller(principal, client[0])

    async def _judged(self, token: str) -> tuple[str, str]:
        principal = None if self._tokens is None else self._tokens.principal(token)
        if principal is not None:
            return principal, bearer_tokens.AUTHENTICATION
        if self._signed is None or not self._signed.looks_like_one(token):
            raise InvalidTokenError("The token is not known, has expired, or is nobody's.")
        return await self._signed.principal(token), json_web_tokens.AUTHENTICATION


@lru_cache(maxsize=1024)
def _caller(principal: str, address: str) -> Caller | None:
    """Return who has a token of the file; null for an address that is none."""
    try:
        return Caller(principal, host_of(address), bearer_tokens.AUTHENTICATION)
    except UnauthenticatedError:
        return None


def _shows_a_certificate(scope: Scope) -> bool:
    """Tell whether the TLS connection has a client certificate. Source: ASGI's TLS extension."""
    tls = scope.get("extensions", _NOTHING).get("tls", _NOTHING)
    return bool(tls.get("client_cert_chain"))
