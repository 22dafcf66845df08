"""Who calls: the credentials of a request, of which it shows exactly one."""

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, Protocol

from starlette.datastructures import Headers
from starlette.requests import Request

from app.domain.addresses import java_host_text
from app.domain.entities import Caller
from app.domain.errors import UnauthenticatedError, UnreadableRequestError, Violation
from app.http.authentication.proxies import TrustedProxies
from app.http.errors import InvalidTokenError, UntrustedIdentityError
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


def presented_by(request: Request, proxies: TrustedProxies) -> Presented:
    """Return what the request shows."""
    scope, headers = request.scope, request.headers
    client = scope.get("client")
    peer = client[0] if client else ""
    is_encrypted = scope.get("scheme") == "https"
    certificate = _certificate(request)
    if not proxies.networks:
        return Presented(headers, peer, peer, is_encrypted, False, certificate)
    noted = headers.getlist(proxies.header.value)
    address, is_proxy = proxies.caller_of(peer, noted), proxies.trust(peer)
    is_encrypted = is_encrypted or (is_proxy and proxies.received_tls(headers))
    return Presented(headers, peer, address, is_encrypted, is_proxy, certificate)


def _certificate(request: Request) -> bytes | None:
    """Return the certificate of the TLS connection. Source: ASGI's TLS extension."""
    chain = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    return ssl.PEM_cert_to_DER_cert(chain[0]) if chain else None


_CERTIFICATE_HEADER: Final = re.compile(r"clientcert|ssl(client|cert)|tlsclient|xfcc")
"""``Client-Cert``, ``X-Forwarded-Client-Cert`` and what other proxies call them, such as
``X-SSL-Client-Cert``, ``X-Forwarded-Tls-Client-Cert`` or ``X-ARR-ClientCert``; in any case, with
dashes, underscores or dots, for a proxy may take these for the same."""

_SEPARATORS: Final = re.compile(r"[-_.]")


def refuse_forged_identity(presented: Presented) -> None:
    """Refuse such headers, which nobody is believed about; of a trusted proxy they are ignored.

    Raises:
        UntrustedIdentityError: There is one.
    """
    if presented.is_from_proxy:
        return
    forged = sorted(filter(_names_a_certificate, set(presented.headers)))
    if not forged:
        return
    detail = "No header is believed about a certificate; show it to this service itself."
    violations = [
        Violation(name, UntrustedIdentityError.default_code, "Leave this header out.")
        for name in forged
    ]
    raise UntrustedIdentityError(detail, violations=violations)


@lru_cache(maxsize=1024)
def _names_a_certificate(name: str) -> bool:
    return _CERTIFICATE_HEADER.search(_SEPARATORS.sub("", name.lower())) is not None


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


class AuthenticatorChain:
    """Asks the one authenticator whose credential a request shows."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    async def authenticate(self, presented: Presented) -> Caller | LoggedIn:
        """Return the caller.

        Raises:
            UnreadableRequestError: Several credentials are presented, or one in another's name.
            UnauthenticatedError: None is, or it is not good.
            NotSentError: What is needed to judge it cannot be had.
        """
        refuse_forged_identity(presented)
        presenting = [kind for kind in self._authenticators if kind.is_presented(presented)]
        if len(presenting) > 1:
            raise several_credentials("Show exactly one credential.")
        try:
            if not presenting:
                self._ask_for_credential(presented)
            return await presenting[0].authenticate(presented)
        except UnauthenticatedError as refusal:
            if presenting:
                refusal.method = presenting[0].name
            schemes = [kind.scheme for kind in (*presenting, *self._authenticators)]
            refusal.schemes = tuple(dict.fromkeys(schemes))
            raise

    def _ask_for_credential(self, presented: Presented) -> NoReturn:
        first, *others = (kind.advice for kind in self._authenticators)
        advice = ", or ".join([first, *(kind[0].lower() + kind[1:] for kind in others)]) + "."
        if "authorization" in presented.headers:
            raise InvalidTokenError(f"The Authorization header is of no accepted kind. {advice}")
        raise UnauthenticatedError(advice)
