"""``Authorization: Basic``: a user and a password that are proved by a login at the brokers.

Source: RFC 7617.
"""

import base64
import binascii
import re
from typing import Final

from app.domain.entities import Caller
from app.http.authentication.authenticator import LoggedIn, Presented, host_of, principal_of
from app.http.authentication.proxies import is_this_machine
from app.http.errors import InvalidTokenError, LoginFailedError, UnencryptedPasswordError
from app.http.rate_limits import LoginAttempts
from app.service.auth.sessions import SessionLease, Sessions

AUTHENTICATION: Final = "basic"
"""How the audit log names this method."""

_SCHEME: Final = re.compile(r"basic(\s|$)", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"basic +([A-Za-z0-9+/]+={0,2})", re.IGNORECASE)
_MAX_CHARACTERS: Final = 4096
"""Of the header: a name has 256 bytes at most, and what is longer is not worth decoding."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Basic:
    """Turns a user and a password into a caller who is logged in at the brokers."""

    name = AUTHENTICATION
    advice = "Send the header Authorization: Basic with your user and password of the brokers"
    scheme = 'Basic realm="kafka-quota-service", charset="UTF-8"'

    def __init__(self, sessions: Sessions, attempts: LoginAttempts) -> None:
        self._sessions = sessions
        self._attempts = attempts

    def is_presented(self, presented: Presented) -> bool:
        """Tell whether the request has such a header."""
        headers = presented.headers.get("authorization", "")
        return _SCHEME.match(headers.strip()) is not None

    async def authenticate(self, presented: Presented) -> LoggedIn:
        """Return the caller, with a session."""
        is_local = is_this_machine(presented.peer) and not presented.is_from_proxy
        if not (presented.is_encrypted or is_local):
            raise UnencryptedPasswordError(
                "The password came unencrypted and is public in the network now: change it, and "
                "use https."
            )
        user, password = _credentials(presented.headers.getlist("authorization"))
        principal = _principal(user)
        host = host_of(presented.address)
        lease = await self._session(user, password, presented.address)
        return LoggedIn(Caller(principal, host, AUTHENTICATION), lease)

    async def _session(self, user: str, password: str, address: str) -> SessionLease:
        if self._sessions.has(user, password):
            return await self._sessions.lease(user, password)
        with self._attempts.attempt(user, address):
            return await self._sessions.lease(user, password)


def _credentials(headers: list[str]) -> tuple[str, str]:
    """Read user and password; neither may be empty or hold control characters. Source: RFC 7617."""
    if len(headers[0]) > _MAX_CHARACTERS:
        raise LoginFailedError(f"The credential has over {_MAX_CHARACTERS} characters.")
    match = _CREDENTIALS.fullmatch(headers[0].strip())
    if len(headers) != 1 or match is None:
        raise LoginFailedError("Send one header Authorization: Basic with base64 of user:password.")
    try:
        text = base64.b64decode(match[1], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise LoginFailedError("The credential is not base64 of UTF-8.") from None
    user, colon, password = text.partition(":")
    if not (user and colon and password) or _CONTROL.search(text):
        raise LoginFailedError("The credential is not user:password.")
    return user, password


def _principal(user: str) -> str:
    try:
        return principal_of(user)
    except InvalidTokenError as error:
        raise LoginFailedError(error.detail) from None
