"""Bearer tokens from a file that holds their SHA-256. Source: RFC 6750."""

import hashlib
import hmac
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from starlette.datastructures import Headers

from app.domain.addresses import java_host_text
from app.domain.callers import Caller
from app.domain.errors import UnauthenticatedError
from app.http.authentication.token_file import TokensFileError, read_tokens
from app.http.errors import InvalidTokenError

AUTHENTICATION: Final = "bearer-token"
"""How the audit log names this method."""

_CHECK_INTERVAL_S: Final = 1.0
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_NO_DIGEST: Final = bytes(hashlib.sha256().digest_size)

logger = structlog.get_logger(__name__)

Version = tuple[int, int, int] | None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class BearerTokens:
    """Turns ``Authorization: Bearer`` into a caller; follows changes of the file.

    Args:
        path: The file, as in ``QUOTAS_TOKENS_FILE``.
        now: The wall clock, which expiry is judged by.
        monotonic: A clock in seconds, for looking at the file at most once a second.

    Raises:
        TokensFileError: The file cannot be used. Once started, a bad file is logged and the
            tokens read before stay good.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime] = _utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._now = now
        self._monotonic = monotonic
        self._version = self._present_version()
        self._tokens = read_tokens(path)
        self._next_check = monotonic() + _CHECK_INTERVAL_S

    def authenticate(self, headers: Headers, peer: str) -> Caller:
        """Return the caller.

        Args:
            headers: Of the request; no other credential is looked for.
            peer: The address of the TCP peer.

        Raises:
            UnauthenticatedError: No credential.
            InvalidTokenError: Malformed, unknown or expired.
        """
        self._follow_changes()
        given = headers.getlist("authorization")
        if not given:
            raise UnauthenticatedError("Send the header Authorization: Bearer with a token.")
        credentials = _CREDENTIALS.fullmatch(given[0].strip())
        if len(given) != 1 or credentials is None:
            raise InvalidTokenError("Send one header Authorization: Bearer with a token.")
        return Caller(self._principal(credentials[1]), _host(peer), AUTHENTICATION)

    def _principal(self, token: str) -> str:
        digest = hashlib.sha256(token.encode("ascii")).digest()
        entry = self._tokens.get(digest)
        known = digest if entry is not None else _NO_DIGEST
        if not hmac.compare_digest(known, digest) or entry is None:
            raise InvalidTokenError("The token is not known.")
        if self._now() >= entry.expires_at:
            raise InvalidTokenError("The token has expired.")
        return entry.principal

    def _follow_changes(self) -> None:
        if self._monotonic() < self._next_check:
            return
        self._next_check = self._monotonic() + _CHECK_INTERVAL_S
        version = self._present_version()
        if version == self._version:
            return
        self._version = version
        try:
            self._tokens = read_tokens(self._path)
        except TokensFileError as error:
            logger.error("the tokens read before stay good", reason=str(error))  # noqa: TRY400
        else:
            logger.info("tokens read again", tokens=len(self._tokens))

    def _present_version(self) -> Version:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


def _host(peer: str) -> str:
    try:
        return java_host_text(peer)
    except ValueError:
        raise UnauthenticatedError("The caller's address is not known, so no rule fits.") from None
