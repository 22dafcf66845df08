"""Tokens that an identity provider signed. Source: RFC 7519, RFC 8725, RFC 9068."""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import jwt
from jwt.exceptions import PyJWTError

from app.domain.errors import UnreadableRequestError
from app.http.authentication.principals import principal_of
from app.http.authentication.signing_keys import SigningKeys
from app.http.errors import InvalidTokenError
from app.http.strict_json import JsonObject, parse_object
from app.service.runtime.clock import utc_now

AUTHENTICATION: Final = "oidc"
"""How the audit log names this method."""

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""What may be allowed: signatures that need the provider's private key."""

MAX_BYTES: Final = 8 * 1024
LEEWAY: Final = timedelta(seconds=30)

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
_INSTANTS: Final = ("exp", "nbf", "iat")


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say.

    Attributes:
        issuer: The one issuer.
        audience: This service's name there.
        algorithms: Of ``ALGORITHMS``.
        principal_claim: Its value is the user name.
        principal_prefix: Stands before the value in the user name.
        privileged: Super users and auditors that no token may name.
    """

    issuer: str
    audience: str
    algorithms: frozenset[str]
    principal_claim: str = "sub"
    principal_prefix: str = ""
    privileged: frozenset[str] = frozenset()


class JsonWebTokens:
    """Turns a signed token into a principal.

    Args:
        rules: What it must say.
        keys: Who may have signed it.
        now: The wall clock.
    """

    def __init__(
        self, rules: TokenRules, keys: SigningKeys, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._now = now

    @staticmethod
    def looks_like_one(token: str) -> bool:
        """Tell whether a token has the three parts of a signed one."""
        return _COMPACT.fullmatch(token) is not None

    async def principal(self, token: str) -> str:
        """Return whose token it is.

        Raises:
            InvalidTokenError: It is not a valid one; the text says why and repeats nothing of it.
            NotSentError: The provider's keys cannot be had.
        """
        if len(token) > MAX_BYTES:
            raise InvalidTokenError(f"The token is longer than {MAX_BYTES} bytes.")
        header, claims = (_part(part) for part in token.split(".")[:2])
        algorithm, key_id = self._read_header(header)
        key = await self._keys.key(key_id)
        if key is None:
            raise InvalidTokenError("The token names a key that the identity provider lacks.")
        if algorithm not in key.algorithms:
            raise InvalidTokenError("The token's algorithm does not fit its key.")
        try:
            jwt.PyJWS(algorithms=[algorithm]).decode(token, key.key, algorithms=[algorithm])
        except (PyJWTError, ValueError):
            raise InvalidTokenError("The token's signature is not valid.") from None
        self._judge(claims)
        return self._principal(claims.get(self._rules.principal_claim))

    def _principal(self, name: object) -> str:
        principal = principal_of(name)
        if prefix := self._rules.principal_prefix:
            principal = principal_of(f"{prefix}{name}")
        if principal in self._rules.privileged:
            detail = (
                "The token names a super user or an auditor, which needs "
                "QUOTAS_OIDC_PRINCIPAL_PREFIX or QUOTAS_OIDC_PRIVILEGED_PRINCIPALS."
            )
            raise InvalidTokenError(detail)
        return principal

    def _read_header(self, header: JsonObject) -> tuple[str, str | None]:
        algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            raise InvalidTokenError("The token is signed with an algorithm that is not allowed.")
        if "kid" in header and not isinstance(key_id, str):
            raise InvalidTokenError("The token does not name its key.")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise InvalidTokenError("The token is not an access token or an identity token.")
        if "crit" in header or "b64" in header:
            raise InvalidTokenError("The token wants an extension that is not understood here.")
        return algorithm, key_id if isinstance(key_id, str) else None

    def _judge(self, claims: JsonObject) -> None:
        if claims.get("iss") != self._rules.issuer:
            raise InvalidTokenError("The token is another issuer's.")
        audience = claims.get("aud")
        listed: Sequence[Any] = audience if isinstance(audience, list) else [audience]
        if self._rules.audience not in listed:
            raise InvalidTokenError("The token is for another audience.")
        times = {name: _instant(name, claims.get(name)) for name in _INSTANTS}
        now, leeway = Decimal(self._now().timestamp()), Decimal(LEEWAY.total_seconds())
        expires, begins, issued = (times[name] for name in _INSTANTS)
        if expires is None:
            raise InvalidTokenError("The token does not say when it expires.")
        if now >= expires + leeway:
            raise InvalidTokenError("The token has expired.")
        if any(time is not None and time > now + leeway for time in (begins, issued)):
            raise InvalidTokenError("The token is not valid yet.")


def _part(text: str) -> JsonObject:
    """Read a part of a token: a JSON object, strictly, in base64url without padding."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return parse_object(data)
    except (binascii.Error, UnreadableRequestError):
        raise InvalidTokenError("The token is malformed.") from None


def _instant(name: str, value: object) -> Decimal | None:
    if value is None:
        return None
    if not isinstance(value, Decimal) or not value.is_finite():
        raise InvalidTokenError(f"The token's {name} is not a number.")
    return value
