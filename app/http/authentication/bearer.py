"""``Authorization: Bearer``: a token of the file, or one that an identity provider signed.

Source: RFC 6750.
"""

import re
from typing import Final

from app.domain.callers import Caller
from app.http.authentication import bearer_tokens, json_web_tokens
from app.http.authentication.bearer_tokens import BearerTokens
from app.http.authentication.hosts import host_of
from app.http.authentication.json_web_tokens import JsonWebTokens
from app.http.authentication.presented import Presented
from app.http.errors import InvalidTokenError

_SCHEME: Final = re.compile(r"bearer(\s|$)", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


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

    async def _judged(self, token: str) -> tuple[str, str]:
        principal = None if self._tokens is None else self._tokens.principal(token)
        if principal is not None:
            return principal, bearer_tokens.AUTHENTICATION
        if self._signed is None or not self._signed.looks_like_one(token):
            raise InvalidTokenError("The token is not known, or has expired.")
        return await self._signed.principal(token), json_web_tokens.AUTHENTICATION
