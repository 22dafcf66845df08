"""The keys that tokens are signed with, from the one address that the settings name.

Source: RFC 7517; OpenID Connect Discovery 1.0, 4.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from app.domain.errors import NotSentError

FRESH_S: Final = 300.0
"""How long keys are used without asking again."""

STALE_S: Final = 3600.0
"""How long they are used where asking again fails."""

FETCH_EVERY_S: Final = 30.0
"""At most one fetch in so many seconds, whatever callers send."""

_ANSWER_WITHIN_S: Final = 5.0
_BESIDE_AFTER_S: Final = 0.25
"""So long the caller who begins a fetch waits for it where the old keys have what is needed."""

_MAX_BYTES: Final = 1024 * 1024
_ASYMMETRIC: Final = frozenset({"RSA", "EC", "OKP"})
_OF_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_LEAST_RSA_BITS: Final = 2048
"""Source: RFC 7518, 3.3."""

_WELL_KNOWN: Final = "/.well-known/openid-configuration"

logger = structlog.get_logger(__name__)


class _FetchError(Exception):
    """The identity provider's answer cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the keys are.

    Attributes:
        issuer: As tokens name it.
        jwks_url: Of the key set; null finds it in the issuer's discovery document.
    """

    issuer: str
    jwks_url: str | None = None


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
        source: Where the keys are. Nothing in a token can name another place.
        client: Asks; it must not follow redirects.
        count_fetch: Told ``ok`` or ``failed`` for each fetch.
        monotonic: A clock in seconds.
    """

    source: KeySource
    client: httpx.AsyncClient
    count_fetch: Callable[[str], None] = lambda _result: None
    monotonic: Callable[[], float] = time.monotonic
    _keys: KeySet = field(default_factory=dict)
    _fetched_at: float | None = None
    _asked_at: float | None = None
    _fetch: asyncio.Task[None] | None = None

    async def key(self, key_id: str | None) -> SigningKey | None:
        """Return a key, or null where the provider has none of that id.

        Without an id it is the provider's only key, where there is just one. A provider that hangs
        delays nobody whose key is cached: the keys are renewed in the background.

        Raises:
            NotSentError: There are no keys to judge by.
        """
        if not self._has(key_id, FRESH_S):
            await self._renew(key_id)
        if self._age() > STALE_S:
            raise NotSentError(
                "The identity provider's keys cannot be had, so no token can be judged.",
                code="identity-provider-unavailable",
                retry_after_s=int(FETCH_EVERY_S),
            )
        return self._keys.get(key_id)

    async def close(self) -> None:
        """Give up a fetch that is under way, and close the connections."""
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
            self._keys = await self._fetched()
        except _FetchError as error:
            self.count_fetch("failed")
            logger.warning("the identity provider's keys cannot be read", reason=str(error))
        else:
            self._fetched_at = self.monotonic()
            self.count_fetch("ok")
        finally:
            self._fetch = None

    async def _fetched(self) -> KeySet:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                return _keys_of(await self._get(await self._jwks_url()))
        except TimeoutError:
            message = f"no answer within {_ANSWER_WITHIN_S:g} s"
            raise _FetchError(message) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"{type(error).__name__}: {error}"
            raise _FetchError(message) from None

    async def _jwks_url(self) -> str:
        if self.source.jwks_url is not None:
            return self.source.jwks_url
        document = await self._get(self.source.issuer.rstrip("/") + _WELL_KNOWN)
        url = document.get("jwks_uri")
        if document.get("issuer") != self.source.issuer:
            message = "the discovery document is another issuer's"
            raise _FetchError(message)
        if not isinstance(url, str) or not is_confidential(url):
            message = "the discovery document names no jwks_uri with https"
            raise _FetchError(message)
        return url

    async def _get(self, url: str) -> Mapping[str, Any]:
        async with self.client.stream("GET", url, follow_redirects=False) as answer:
            if answer.status_code != httpx.codes.OK:
                message = f"{url} answered {answer.status_code}"
                raise _FetchError(message)
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > _MAX_BYTES:
                    message = f"{url} answered more than {_MAX_BYTES} bytes"
                    raise _FetchError(message)
        try:
            document = json.loads(bytes(body))
        except ValueError:
            document = None
        if not isinstance(document, dict):
            message = f"{url} did not answer a JSON object"
            raise _FetchError(message)
        return document


def is_confidential(url: str) -> bool:
    """Tell whether nobody on the way can change what a URL answers: https, or this machine."""
    try:
        parsed = urlsplit(url)
    except ValueError:
        return False
    local = parsed.hostname in ("127.0.0.1", "::1", "localhost")
    return bool(parsed.hostname) and (
        parsed.scheme == "https" or (parsed.scheme == "http" and local)
    )


def _keys_of(document: Mapping[str, Any]) -> KeySet:
    """Return the keys for signatures by id; others, and those not understood, are left out."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        message = "the key set has no list of keys"
        raise _FetchError(message)
    read: list[tuple[str | None, SigningKey]] = []
    for one in listed:
        usable = isinstance(one, dict) and one.get("use", "sig") == "sig"
        if usable and one.get("kty") in _ASYMMETRIC:
            with suppress(PyJWTError, ValueError):
                read.append((one.get("kid"), _signing_key(one)))
    if not read:
        message = "the key set has no key for signatures"
        raise _FetchError(message)
    named: dict[str | None, SigningKey] = {name: key for name, key in read if name is not None}
    return {**named, None: read[0][1]} if len(read) == 1 else named


def _signing_key(document: Mapping[str, Any]) -> SigningKey:
    """Read one key; without ``alg`` its type and curve say what it is for.

    Raises:
        PyJWTError, ValueError: It cannot be read, or is too short to be trusted.
    """
    read = PyJWK(dict(document))
    of_rsa = document["kty"] == "RSA"
    if of_rsa and read.key.key_size < _LEAST_RSA_BITS:
        message = "an RSA key is too short"
        raise ValueError(message)
    fits = _OF_RSA if of_rsa else frozenset({read.algorithm_name})
    return SigningKey(read.key, fits & {document["alg"]} if "alg" in document else fits)
