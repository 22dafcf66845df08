"""What an authenticator is: what it looks at, what it returns, and which names it may return."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from starlette.datastructures import Headers

from app.domain.addresses import java_host_text
from app.domain.entities import Caller
from app.domain.errors import UnauthenticatedError, UnreadableRequestError
from app.http.errors import InvalidTokenError
from app.http.headers import bad_header
from app.service.auth.sessions import SessionLease

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOBODY: Final = frozenset({"", "*", "ANONYMOUS"})
_TYPED: Final = re.compile(r"\s*user\s*:", re.IGNORECASE)
LONGEST_NAME: Final = 256
"""Of a user, in bytes of UTF-8: who has a longer one could not be recorded everywhere."""


def principal_of(name: object) -> str:
    """Return the principal of a user: ``User:`` and the name.

    Raises:
        InvalidTokenError: Nobody may have that name: it is no text, empty, ``ANONYMOUS``, the
            wildcard of ACLs, has control characters or blanks at an end, has over 256 bytes, or
            looks like a principal already, which would read as another one's.
    """
    if not isinstance(name, str) or name in _NOBODY or name != name.strip():
        raise InvalidTokenError("The credential names nobody.")
    if _CONTROL.search(name) or _TYPED.match(name):
        raise InvalidTokenError("The credential's name is one that nobody may have.")
    if len(name.encode()) > LONGEST_NAME:
        detail = f"The credential's name has over {LONGEST_NAME} bytes of UTF-8."
        raise InvalidTokenError(detail)
    return f"User:{name}"


def is_admissible(principal: str) -> bool:
    """Tell whether a principal of the tokens file may call: its name is not too long, nor typed."""
    name = principal.partition(":")[2]
    return len(name.encode(errors="replace")) <= LONGEST_NAME and _TYPED.match(name) is None


@lru_cache(maxsize=1024)
def host_of(peer: str) -> str:
    """Return the address in Java's text form.

    Raises:
        UnauthenticatedError: It is no address.
    """
    try:
        return java_host_text(peer)
    except ValueError:
        raise UnauthenticatedError(
            "The caller's address cannot be read, so no rule fits."
        ) from None


@dataclass(frozen=True, slots=True)
class Presented:
    """What authentication may look at.

    Attributes:
        headers: Of the request, all of them.
        peer: The numeric address of the TCP peer; empty where it is unknown.
        address: The caller's: the peer's, or what a trusted proxy says it is; empty where it is
            unknown.
        is_encrypted: Whether this listener speaks TLS with the peer or, where that is a trusted
            proxy, the proxy says that the caller came to it by https.
        is_from_proxy: Whether the peer is a trusted proxy.
        certificate: In DER; the peer owns it, and it is of an accepted authority.
    """

    headers: Headers
    peer: str
    address: str
    is_encrypted: bool = False
    is_from_proxy: bool = False
    certificate: bytes | None = None


def several_credentials(detail: str, header: str = "authorization") -> UnreadableRequestError:
    """Return the refusal of a request with several credentials, or several forms of one."""
    return bad_header(header, "several-credentials", detail)


class LoggedIn(NamedTuple):
    """A caller with a session at the brokers; whoever gets it releases the lease."""

    caller: Caller
    lease: SessionLease


class Authenticator(Protocol):
    """One kind of credential.

    Attributes:
        name: How metrics name it where its credential is refused.
        advice: What a caller without a credential may send, as a sentence without its end.
        scheme: The same for ``WWW-Authenticate``.
    """

    name: str
    advice: str
    scheme: str

    def is_presented(self, presented: Presented) -> bool:
        """Tell whether the request shows such a credential, good or bad."""
        ...

    async def authenticate(self, presented: Presented) -> Caller | LoggedIn:
        """Return the caller whose credential is presented.

        Raises:
            UnauthenticatedError: The credential is not good.
            NotSentError: What is needed to judge it cannot be had.
        """
        ...
