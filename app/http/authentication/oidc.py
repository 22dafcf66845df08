"""Tokens that an identity provider signed, and the keys that it signs them with.

Source: RFC 7519, RFC 8725, RFC 9068; of the keys RFC 7517.
"""

import asyncio
import base64
import binascii
import re
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import httpx
import jwt
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from app.domain.errors import NotSentError, UnreadableRequestError
from app.http.authentication.authenticator import principal_of
from app.http.authentication.discovery import (
    ANSWER_WITHIN_S,
    FetchError,
    discover,
    endpoint,
    fetch_object,
)
from app.http.errors import InvalidTokenError
from app.http.validation import JsonObject, parse_object
from app.service.runtime.clock import utc_now

FRESH_S: Final = 300.0
"""How long keys are used without asking again."""

STALE_S: Final = 3600.0
"""How long they are used where asking again fails."""

FETCH_EVERY_S: Final = 30.0
"""At most one fetch in so many seconds, whatever callers send."""

_BESIDE_AFTER_S: Final = 0.25
"""So long the caller who begins a fetch waits for it where the old keys have what is needed."""

_ASYMMETRIC: Final = frozenset({"RSA", "EC", "OKP"})
_OF_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_LEAST_RSA_BITS: Final = 2048
"""Source: RFC 7518, 3.3."""

_NO_KEY: Final = (PyJWTError, ValueError, TypeError, NotImplementedError)
"""What PyJWT raises where a member of a key is missing, of another type, or not supported."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the algorithms that it may have signed with."""

    key: Any
    algorithms: frozenset[str]


KeySet = Mapping[str | None, SigningKey]
"""By id; the only key of a set stands there without one too."""


@dataclass(slots=True)
class SigningKeys:
    """A copy of the key set, asked for anew when it is old or lacks a key.

    Args:
        issuer: As tokens name it. Nothing in a token can name another.
        jwks_url: Of the key set; null finds it in the issuer's discovery document.
        client: Asks; it must not follow redirects.
        count_fetch: Called with ``ok`` or ``failed`` for each fetch.
        monotonic: A clock in seconds.
    """

    issuer: str
    jwks_url: str | None
    client: httpx.AsyncClient
    count_fetch: Callable[[str], None] = lambda _result: None
    monotonic: Callable[[], float] = time.monotonic
    _keys: KeySet = field(default_factory=dict)
    _fetched_at: float | None = None
    _asked_at: float | None = None
    _failed: bool = False
    _fetch: asyncio.Task[None] | None = None

    async def key(self, key_id: str | None) -> SigningKey | None:
        """Return a key, or null where the provider has none of that id.

        Without an id it is the provider's only key, where there is just one. A provider that hangs
        delays nobody whose key is cached: the keys are renewed in the background.

        Raises:
            NotSentError: There are no keys to judge by; or not this one, and the provider, which
                may have published it since, does not tell.
        """
        if not self._has(key_id, FRESH_S):
            await self._renew(key_id)
        key = self._keys.get(key_id)
        if self._age() > STALE_S or (key is None and self._failed):
            raise NotSentError(
                "The identity provider's keys cannot be had, so no token can be judged.",
                code="identity-provider-unavailable",
                retry_after_s=int(FETCH_EVERY_S),
            )
        return key

    async def close(self) -> None:
        """Cancel a pending fetch, and close the connections."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait({self._fetch})
        await self.client.aclose()

    def age_s(self) -> float | None:
        """Return how old the keys are, in seconds; null without keys."""
        return None if self._fetched_at is None else self._age()

    def _age(self) -> float:
        return float("inf") if self._fetched_at is None else self.monotonic() - self._fetched_at

    def _has(self, key_id: str | None, max_age_s: float) -> bool:
        return key_id in self._keys and self._age() <= max_age_s

    async def _renew(self, key_id: str | None) -> None:
        """Begin a fetch, unless there was one just now, and wait for it as long as that helps."""
        begins = self._fetch is None
        if self._fetch is None:
            asked = self._asked_at
            if asked is not None and self.monotonic() - asked < FETCH_EVERY_S:
                return
            self._asked_at = self.monotonic()
            self._fetch = asyncio.create_task(self._refresh(), context=Context())
        if self._has(key_id, STALE_S):
            await asyncio.wait({self._fetch}, timeout=_BESIDE_AFTER_S if begins else 0)
        else:
            await asyncio.wait({self._fetch})

    async def _refresh(self) -> None:
        try:
            self._keys = await self._fetch_keys()
        except FetchError as error:
            self._failed = True
            self.count_fetch("failed")
            logger.warning("the identity provider's keys cannot be read", reason=str(error))
        else:
            self._fetched_at, self._failed = self.monotonic(), False
            self.count_fetch("ok")
        finally:
            self._fetch = None

    async def _fetch_keys(self) -> KeySet:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return _keys_of(await fetch_object(self.client, await self._jwks_url()))
        except TimeoutError:
            message = f"no answer within {ANSWER_WITHIN_S:g} s"
            raise FetchError(message) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"{type(error).__name__}: {error}"
            raise FetchError(message) from None

    async def _jwks_url(self) -> str:
        if self.jwks_url is not None:
            return self.jwks_url
        return endpoint(await discover(self.client, self.issuer), "jwks_uri")


def _keys_of(document: Mapping[str, Any]) -> KeySet:
    """Return the keys for signatures by id; others, and those not understood, are left out."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        message = "the key set has no list of keys"
        raise FetchError(message)
    read: list[tuple[str | None, SigningKey]] = []
    for entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("kid", ""), str | None):
            with suppress(*_NO_KEY):
                if entry.get("use", "sig") == "sig" and entry.get("kty") in _ASYMMETRIC:
                    read.append((entry.get("kid"), _signing_key(entry)))
    if not read:
        message = "the key set has no key for signatures"
        raise FetchError(message)
    named: dict[str | None, SigningKey] = {name: key for name, key in read if name is not None}
    return {**named, None: read[0][1]} if len(read) == 1 else named


def _signing_key(document: Mapping[str, Any]) -> SigningKey:
    """Read one key; without ``alg`` its type and curve say what it is for.

    Raises:
        _NO_KEY: It cannot be read, or is too short to be trusted.
    """
    read = PyJWK(dict(document))
    of_rsa = document["kty"] == "RSA"
    if of_rsa and read.key.key_size < _LEAST_RSA_BITS:
        message = "an RSA key is too short"
        raise ValueError(message)
    fits = _OF_RSA if of_rsa else frozenset({read.algorithm_name})
    return SigningKey(read.key, fits & {document["alg"]} if "alg" in document else fits)


OIDC: Final = "oidc"
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
    """What a token must say; it may name none of ``privileged``, super users and auditors.

    These may change: a set that its owner changes is judged by as it is then.
    """

    issuer: str
    audience: str
    algorithms: frozenset[str]
    principal_claim: str = "sub"
    principal_prefix: str = ""
    privileged: AbstractSet[str] = frozenset()


class JsonWebTokens:
    """Turns a signed token into a principal."""

    def __init__(
        self, rules: TokenRules, keys: SigningKeys, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._rules = rules
        self._keys = keys
        self._now = now

    @staticmethod
    def is_compact(token: str) -> bool:
        """Tell whether a token has the three sections of a signed one."""
        return _COMPACT.fullmatch(token) is not None

    async def principal(self, token: str) -> str:
        """Return whose token it is.

        Raises:
            InvalidTokenError: It is not a valid one; the text says why and repeats nothing of it.
            NotSentError: The provider's keys cannot be had.
        """
        if len(token) > MAX_BYTES:
            raise InvalidTokenError(f"The token is longer than {MAX_BYTES} bytes.")
        header, claims = (_decode(chunk) for chunk in token.split(".")[:2])
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
            raise InvalidTokenError(
                "The token is for another audience; ask for one for this service."
            )
        times = {name: _instant(name, claims.get(name)) for name in _INSTANTS}
        now, leeway = Decimal(self._now().timestamp()), Decimal(LEEWAY.total_seconds())
        expires, begins, issued = (times[name] for name in _INSTANTS)
        if expires is None:
            raise InvalidTokenError("The token does not say when it expires.")
        if now >= expires + leeway:
            raise InvalidTokenError("The token has expired; get a new one.")
        if any(time is not None and time > now + leeway for time in (begins, issued)):
            raise InvalidTokenError("The token is not valid yet; check the clocks, or wait.")


def _decode(text: str) -> JsonObject:
    """Read a section of a token: a JSON object, strictly, in base64url without padding."""
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
