"""``Authorization: Bearer``: a token of the file, or one that an identity provider signed.

Source: RFC 6750.
"""

import re
from typing import Final

from starlette.datastructures import Headers

from app.domain.addresses import java_host_text
from app.domain.callers import Caller
from app.domain.errors import UnauthenticatedError
from app.http.authentication import bearer_tokens, json_web_tokens
from app.http.authentication.bearer_tokens import BearerTokens
from app.http.authentication.json_web_tokens import JsonWebTokens
from app.http.errors import InvalidTokenError

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

    async def authenticate(self, headers: Headers, peer: str) -> Caller:
        """Return the caller.

        Args:
            headers: Of the request; no other credential is looked for.
            peer: The address of the TCP peer.

        Raises:
            UnauthenticatedError: No credential.
            InvalidTokenError: Malformed, unknown or expired.
            NotSentError: The identity provider cannot be asked.
        """
        given = headers.getlist("authorization")
        if not given:
            raise UnauthenticatedError("Send the header Authorization: Bearer with a token.")
        credentials = _CREDENTIALS.fullmatch(given[0].strip())
        if len(given) != 1 or credentials is None:
            raise InvalidTokenError("Send one header Authorization: Bearer with a token.")
        principal, method = await self._judged(credentials[1])
        return Caller(principal, _host(peer), method)

    async def _judged(self, token: str) -> tuple[str, str]:
        principal = None if self._tokens is None else self._tokens.principal(token)
        if principal is not None:
            return principal, bearer_tokens.AUTHENTICATION
        if self._signed is None or not self._signed.looks_like_one(token):
            raise InvalidTokenError("The token is not known, or has expired.")
        return await self._signed.principal(token), json_web_tokens.AUTHENTICATION


def _host(peer: str) -> str:
    try:
        return java_host_text(peer)
    except ValueError:
        raise UnauthenticatedError("The caller's address is not known, so no rule fits.") from None
