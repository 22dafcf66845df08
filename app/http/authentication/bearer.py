"""``Authorization: Bearer``: a token of the file, or one that an identity provider signed.

Source: RFC 6750.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from app.domain.entities import Caller
from app.domain.errors import QuotaError, Violation
from app.http.authentication.authenticator import Presented, host_of, is_admissible
from app.http.authentication.discovery import SignIn
from app.http.authentication.oidc import OIDC, JsonWebTokens
from app.http.errors import InvalidTokenError
from app.http.models import read_time
from app.http.validation import (
    JsonValue,
    StrictModel,
    kind_of,
    own_error,
    parse_json,
    violations_of,
)

_PRINCIPAL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*:[^\x00-\x1f\x7f]+")
_SHA256: Final = re.compile("[0-9A-Fa-f]{64}")
_NOBODY: Final = frozenset({"User:ANONYMOUS", "User:*"})
"""The principal of an unauthenticated connection, and the wildcard of ACLs."""


def is_principal(text: str) -> bool:
    """Tell whether a text is a principal as Kafka prints it: a type, a colon, a name."""
    return _PRINCIPAL.fullmatch(text) is not None


class TokensFileError(Exception):
    """The file cannot be used; the text names the file and every entry at fault."""


def _check_principal(text: str) -> str:
    if not is_principal(text):
        raise own_error("invalid", "this is not a principal such as User:alice")
    if text in _NOBODY:
        raise own_error("invalid", f"{text} cannot have a token")
    return text


def _digest(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise own_error("invalid", "this is not a SHA-256 in hexadecimal")
    return text.lower()


def _time(text: JsonValue) -> datetime:
    if not isinstance(text, str):
        raise own_error("wrong-type", f"This must be a string, not {kind_of(text)}.")
    try:
        return read_time(text)
    except ValueError as error:
        raise own_error("invalid", str(error)) from None


class TokenEntry(StrictModel):
    """Whose token it is, and until when it is good (UTC, exclusive)."""

    principal: Annotated[str, AfterValidator(_check_principal)]
    token_sha256: Annotated[str, AfterValidator(_digest)]
    expires_at: Annotated[datetime, BeforeValidator(_time)]


Tokens = Mapping[str, TokenEntry]
"""By the SHA-256 of the token; without those of principals who may not call."""

_ENTRIES: Final = TypeAdapter(list[TokenEntry])


def read_tokens(path: Path) -> Tokens:
    """Read the file: a JSON list of ``{"principal", "token_sha256", "expires_at"}``.

    A fault repeats nothing that stands in the file: it may be a token in the wrong place.

    Raises:
        TokensFileError: The file is missing, is not such a list, names a token twice, or has a
            principal that nobody can be.
    """
    found: Iterable[Violation]
    try:
        entries = _ENTRIES.validate_python(parse_json(path.read_bytes()))
    except OSError as error:
        raise _unusable_file(path, [str(error.strerror)]) from error
    except QuotaError as error:
        found = error.violations
    except ValidationError as error:
        found = violations_of(error.errors(include_url=False), list[TokenEntry])
    else:
        return _tokens(path, entries)
    raise _unusable_file(path, [_without_content(violation) for violation in found])


def _without_content(violation: Violation) -> str:
    """Return where and what the fault is; only the names of an entry's own members are repeated."""
    *above, name = violation.pointer.split("/")
    if not above or name.isdecimal() or name in TokenEntry.model_fields:
        is_repeated = violation.code == "duplicate-json-key"
        detail = "this is there more than once" if is_repeated else violation.detail
        return f"{violation.pointer} {detail}"
    return f"{'/'.join(above)} takes {', '.join(TokenEntry.model_fields)}, each once"


def _tokens(path: Path, entries: Sequence[TokenEntry]) -> Tokens:
    tokens: dict[str, TokenEntry] = {}
    repeated = []
    for index, entry in enumerate(entries):
        if entry.token_sha256 in tokens:
            repeated.append(f"/{index}/token_sha256 the token is there twice")
        tokens[entry.token_sha256] = entry
    if repeated:
        raise _unusable_file(path, repeated)
    return {digest: entry for digest, entry in tokens.items() if is_admissible(entry.principal)}


def _unusable_file(path: Path, faults: list[str]) -> TokensFileError:
    text = "; ".join(fault.strip().rstrip(".") for fault in faults)
    return TokensFileError(f"The tokens file {path} cannot be used: {text}.")


BEARER: Final = "bearer-token"
"""How the audit log names this kind of authentication."""

_CHECK_INTERVAL_S: Final = 1.0

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
        now: Callable[[], datetime] = partial(datetime.now, UTC),  # noqa: B008 - no call
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
        # By its digest: the time that a look-up takes tells nothing of a token.
        entry = self._tokens.get(hashlib.sha256(token.encode("ascii")).hexdigest())
        return entry.principal if entry is not None and self._now() < entry.expires_at else None

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


_SCHEME: Final = re.compile(r"bearer(\s|$)", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


class Bearer:
    """Turns a bearer token into a caller.

    Args:
        tokens: Those of the file; null where there is none.
        signed: Judges those of an identity provider; null where there is none.
        sign_in: How the page gets one there; null where there is none.
    """

    def __init__(
        self,
        tokens: BearerTokens | None,
        signed: JsonWebTokens | None = None,
        sign_in: SignIn | None = None,
    ) -> None:
        self._tokens = tokens
        self._signed = signed
        self.sign_in = sign_in

    name = BEARER
    advice = "Send the header Authorization: Bearer with a token"
    scheme = "Bearer"

    def is_presented(self, presented: Presented) -> bool:
        """Tell whether the request has such a header."""
        headers = presented.headers.get("authorization", "")
        return _SCHEME.match(headers.strip()) is not None

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller."""
        headers = presented.headers.getlist("authorization")
        credentials = _CREDENTIALS.fullmatch(headers[0].strip())
        if len(headers) != 1 or credentials is None:
            raise InvalidTokenError("Send one header Authorization: Bearer with a token.")
        principal, method = await self._principal_of(credentials[1])
        return Caller(principal, host_of(presented.address), method)

    async def _principal_of(self, token: str) -> tuple[str, str]:
        principal = None if self._tokens is None else self._tokens.principal(token)
        if principal is not None:
            return principal, BEARER
        if self._signed is None or not self._signed.is_compact(token):
            raise InvalidTokenError(
                "The token is unknown, has expired, or is nobody's; get a new one."
            )
        return await self._signed.principal(token), OIDC
