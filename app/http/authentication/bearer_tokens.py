"""Bearer tokens from a file that holds their SHA-256."""

import hashlib
import hmac
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from app.http.authentication.principals import is_admissible
from app.http.authentication.token_file import TokensFileError, read_tokens
from app.service.runtime.clock import utc_now

AUTHENTICATION: Final = "bearer-token"
"""How the audit log names this method."""

_CHECK_INTERVAL_S: Final = 1.0
_NO_DIGEST: Final = bytes(hashlib.sha256().digest_size)

logger = structlog.get_logger(__name__)

Version = tuple[int, int, int] | None


class BearerTokens:
    """Knows whose a token is; follows changes of the file.

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
        now: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._now = now
        self._monotonic = monotonic
        self._version = self._present_version()
        self._tokens = read_tokens(path)
        self._next_check = monotonic() + _CHECK_INTERVAL_S

    def principal(self, token: str) -> str | None:
        """Return whose token it is; null where nobody may call with it, or it has expired."""
        self._follow_changes()
        digest = hashlib.sha256(token.encode("ascii")).digest()
        entry = self._tokens.get(digest)
        known = digest if entry is not None else _NO_DIGEST
        if not hmac.compare_digest(known, digest) or entry is None:
            return None
        if self._now() >= entry.expires_at or not is_admissible(entry.principal):
            return None
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
