"""What an identity provider says of itself: its discovery document, and other JSON that it answers.

Source: OpenID Connect Discovery 1.0, 4.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx
import structlog

ANSWER_WITHIN_S: Final = 5.0

_MAX_BYTES: Final = 1024 * 1024
_PATH: Final = "/.well-known/openid-configuration"

logger = structlog.get_logger(__name__)


class FetchError(Exception):
    """The identity provider's answer cannot be used; the text says why."""


async def discover(client: httpx.AsyncClient, issuer: str) -> Mapping[str, Any]:
    """Return the issuer's discovery document.

    Raises:
        FetchError: It cannot be used, or is another issuer's.
    """
    document = await fetch_object(client, issuer.rstrip("/") + _PATH)
    if document.get("issuer") != issuer:
        message = "the discovery document is another issuer's"
        raise FetchError(message)
    return document


def endpoint(document: Mapping[str, Any], name: str) -> str:
    """Return an address that the discovery document has.

    Raises:
        FetchError: It has none that nobody in between can change.
    """
    url = document.get(name)
    if not isinstance(url, str) or not is_confidential(url):
        message = f"the discovery document names no {name} with https"
        raise FetchError(message)
    return url


async def fetch_object(client: httpx.AsyncClient, url: str) -> Mapping[str, Any]:
    """Return the JSON object that an address answers with.

    Raises:
        FetchError: It answers something else, or more than 1 MiB.
    """
    async with client.stream("GET", url, follow_redirects=False) as answer:
        if answer.status_code != httpx.codes.OK:
            message = f"{url} answered {answer.status_code}"
            raise FetchError(message)
        body = bytearray()
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BYTES:
                message = f"{url} answered more than {_MAX_BYTES} bytes"
                raise FetchError(message)
    try:
        document = json.loads(bytes(body))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        message = f"{url} did not answer a JSON object"
        raise FetchError(message)
    return document


def is_confidential(url: str) -> bool:
    """Tell whether nobody in between can change what a URL answers: https, or this machine."""
    try:
        parsed = urlsplit(url)
    except ValueError:
        return False
    local = parsed.hostname in ("127.0.0.1", "::1", "localhost")
    return bool(parsed.hostname) and (
        parsed.scheme == "https" or (parsed.scheme == "http" and local)
    )


class SignInEndpoints(NamedTuple):
    """Where the page sends people, and where it takes their token for the code."""

    authorization: str
    token: str

    @property
    def token_origin(self) -> str:
        """The origin of the token endpoint, as a Content-Security-Policy names it."""
        parsed = urlsplit(self.token)
        return f"{parsed.scheme}://{parsed.netloc}"


class PageClient(NamedTuple):
    """The page as a client of the identity provider; it has no secret.

    Attributes:
        token: The member of the token endpoint's answer that this service takes. An identity token
            is for its client, so where the client is the audience it is that one, else the access
            token.
    """

    client_id: str
    scope: str
    token: Literal["id_token", "access_token"]


_FRESH_S: Final = 300.0
_AGAIN_AFTER_S: Final = 30.0
"""So long after a failure nobody is asked."""

_WAIT_S: Final = 2.0
"""The longest that a page waits for them; the fetch goes on."""


@dataclass(slots=True)
class SignIn:
    """How people sign in on the page at the identity provider."""

    issuer: str
    page: PageClient
    client: httpx.AsyncClient
    monotonic: Callable[[], float] = time.monotonic
    _found: SignInEndpoints | None = None
    _good_until: float | None = None
    _fetch: asyncio.Task[None] | None = None

    async def endpoints(self) -> SignInEndpoints | None:
        """Return the endpoints; null where the provider does not tell, or not in time."""
        if self._good_until is None or self.monotonic() >= self._good_until:
            if self._fetch is None:
                self._fetch = asyncio.create_task(self._refresh(), context=Context())
            await asyncio.wait({self._fetch}, timeout=0 if self._found else _WAIT_S)
        return self._found

    async def close(self) -> None:
        """Cancel a pending fetch."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait({self._fetch})

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                document = await discover(self.client, self.issuer)
            names = ("authorization_endpoint", "token_endpoint")
            self._found = SignInEndpoints(*(endpoint(document, name) for name in names))
            self._good_until = self.monotonic() + _FRESH_S
        except (FetchError, TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
            self._found, self._good_until = None, self.monotonic() + _AGAIN_AFTER_S
            logger.warning("nobody can sign in at the identity provider", reason=str(error))
        finally:
            self._fetch = None
