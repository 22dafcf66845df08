"""The file of bearer tokens, read strictly: an entry that is not understood admits nobody."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, TypeAdapter, ValidationError

from app.domain.errors import UnreadableRequestError
from app.http.encoding import read_time
from app.http.strict_json import parse_json, shown
from app.http.validation import StrictModel, own_error, violations_of

_FIELDS: Final = frozenset({"principal", "token_sha256", "expires_at"})
_PRINCIPAL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*:[^\x00-\x1f\x7f]+")
_SHA256: Final = re.compile("[0-9A-Fa-f]{64}")
_NOBODY: Final = frozenset({"User:ANONYMOUS", "User:*"})
"""The principal of an unauthenticated connection, and the wildcard of ACLs."""


def is_principal(text: str) -> bool:
    """Tell whether a text is a principal as Kafka prints it: a type, a colon, a name."""
    return _PRINCIPAL.fullmatch(text) is not None


class TokensFileError(Exception):
    """The file cannot be used; the text names the file and every entry at fault."""


def _checked_principal(text: str) -> str:
    if not is_principal(text):
        raise own_error("invalid", f"{shown(text)} is not a principal such as User:alice")
    if text in _NOBODY:
        raise own_error("invalid", f"{text} cannot be given a token")
    return text


def _checked_digest(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise own_error("invalid", "this is not a SHA-256 in hexadecimal")
    return text


def _checked_time(text: str) -> str:
    try:
        read_time(text)
    except ValueError as error:
        raise own_error("invalid", str(error)) from None
    return text


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """Whose token it is, and until when it is good (UTC, exclusive)."""

    principal: str
    expires_at: datetime


Tokens = Mapping[bytes, TokenEntry]
"""By the SHA-256 of the token."""


class _Entry(StrictModel):
    principal: Annotated[str, AfterValidator(_checked_principal)]
    token_sha256: Annotated[str, AfterValidator(_checked_digest)]
    expires_at: Annotated[str, AfterValidator(_checked_time)]


_ENTRIES: Final = TypeAdapter(list[_Entry])


def read_tokens(path: Path) -> Tokens:
    """Read the file: a JSON list of ``{"principal", "token_sha256", "expires_at"}``.

    Raises:
        TokensFileError: The file is missing, is not such a list, names a token twice, or has a
            principal that nobody can be.
    """
    try:
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise _refused(path, [str(error.strerror)]) from error
    except UnreadableRequestError as error:
        raise _refused(path, [f"{one.pointer} {one.detail}" for one in error.violations]) from None
    if not isinstance(value, list):
        raise _refused(path, ["it must be a list"])
    try:
        entries = _ENTRIES.validate_python(value)
    except ValidationError as error:
        found = violations_of(error.errors(include_url=False), list[_Entry])
        raise _refused(path, [f"{one.pointer} {one.detail}" for one in found]) from None
    return _tokens(path, entries)


def _tokens(path: Path, entries: Sequence[_Entry]) -> Tokens:
    tokens: dict[bytes, TokenEntry] = {}
    repeated = []
    for index, entry in enumerate(entries):
        digest = bytes.fromhex(entry.token_sha256)
        if digest in tokens:
            repeated.append(f"/{index}/token_sha256 the token is there twice")
        tokens[digest] = TokenEntry(entry.principal, read_time(entry.expires_at))
    if repeated:
        raise _refused(path, repeated)
    return tokens


def _refused(path: Path, faults: list[str]) -> TokensFileError:
    text = "; ".join(fault.strip().rstrip(".") for fault in faults)
    return TokensFileError(f"The tokens file {path} cannot be used: {text}.")
