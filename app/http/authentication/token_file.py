"""The file of bearer tokens, read strictly: an entry that is not understood admits nobody."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from app.domain.errors import UnreadableRequestError
from app.http.reading import ObjectReader, Reading
from app.http.strict_json import JsonValue, parse_json, shown
from app.http.times import read_time

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


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """Whose token it is, and until when it is good (UTC, exclusive)."""

    principal: str
    expires_at: datetime


Tokens = Mapping[bytes, TokenEntry]
"""By the SHA-256 of the token."""


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
    return _tokens(path, value)


def _tokens(path: Path, items: list[JsonValue]) -> Tokens:
    reading = Reading()
    tokens: dict[bytes, TokenEntry] = {}
    for index, item in enumerate(items):
        for digest, entry in _read_entry(item, f"/{index}", reading):
            if digest in tokens:
                reading.reject(f"/{index}/token_sha256", "duplicate", "the token is there twice")
            tokens[digest] = entry
    if reading.unreadable:
        raise _refused(path, [f"{one.pointer} {one.detail}" for one in reading.unreadable])
    return tokens


def _read_entry(
    item: JsonValue, pointer: str, reading: Reading
) -> Iterator[tuple[bytes, TokenEntry]]:
    reader = ObjectReader.of(item, pointer, _FIELDS, reading)
    if reader is None or not reader.need(*sorted(_FIELDS)):
        return
    principal, digest = reader.text("principal") or "", reader.text("token_sha256") or ""
    for name, problem in _entry_problems(principal, digest):
        reading.reject(f"{pointer}/{name}", "invalid", problem)
    try:
        expires_at = read_time(reader.text("expires_at") or "")
    except ValueError as error:
        reading.reject(f"{pointer}/expires_at", "invalid", str(error))
        return
    if _SHA256.fullmatch(digest):
        yield bytes.fromhex(digest), TokenEntry(principal, expires_at)


def _entry_problems(principal: str, digest: str) -> Iterator[tuple[str, str]]:
    if not is_principal(principal):
        yield "principal", f"{shown(principal)} is not a principal such as User:alice"
    elif principal in _NOBODY:
        yield "principal", f"{principal} cannot be given a token"
    if not _SHA256.fullmatch(digest):
        yield "token_sha256", "this is not a SHA-256 in hexadecimal"


def _refused(path: Path, faults: list[str]) -> TokensFileError:
    text = "; ".join(fault.strip().rstrip(".") for fault in faults)
    return TokensFileError(f"The tokens file {path} cannot be used: {text}.")
