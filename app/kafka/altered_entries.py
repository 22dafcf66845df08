"""Many entries of an alter's answer at once, as nearly all of them are: short and without tags."""

from typing import Final

from app.domain.entities import ClientQuotaEntity
from app.kafka.described_layout import UnusualError

AlteredEntry = tuple[ClientQuotaEntity, int, str | None]
"""The entity, the error code, the broker's words."""

_MORE_BYTES: Final = 0x80


def entries_at_once(
    data: bytes | bytearray, at: int, number: int
) -> tuple[list[AlteredEntry], int] | None:
    """Read so many entries of version 1 from a place on.

    Returns:
        The entries and the place after them; null where a code is negative, a length takes more
        than a byte, a field is tagged, a type is null or there twice, a name is not UTF-8, or the
        data ends early: all that is left to the reader that can say what is wrong.
    """
    entries = []
    try:
        for _ in range(number):
            entry, at = _entry(data, at)
            entries.append(entry)
    except (UnusualError, IndexError, UnicodeDecodeError):
        return None
    return (entries, at) if at <= len(data) else None


def _entry(data: bytes | bytearray, at: int) -> tuple[AlteredEntry, int]:
    code, length = data[at] << 8 | data[at + 1], data[at + 2]
    at += 3
    end = at + length - 1 if length else at
    number = data[end]
    if (data[at - 3] | length | number) & _MORE_BYTES or not number:
        raise UnusualError
    text = data[at:end].decode() if length else None
    at = end + 1
    parts = []
    for _ in range(number - 1):
        middle = at + data[at]
        size = data[middle]
        end = middle + size if size else middle + 1
        if (data[at] | size | data[end]) & _MORE_BYTES or middle == at or data[end]:
            raise UnusualError
        name = data[middle + 1 : end].decode() if size else None
        parts.append((data[at + 1 : middle].decode(), name))
        at = end + 1
    if data[at] or len({kind for kind, _ in parts}) < len(parts):
        raise UnusualError
    return (ClientQuotaEntity(tuple(sorted(parts))), code, text), at + 1
