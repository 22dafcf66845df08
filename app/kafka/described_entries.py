"""The entries of a describe-all answer: at once where they are as usual, else one by one."""

from collections.abc import Sequence

from app.kafka.described_at_once import cut_at_once, read_at_once
from app.kafka.described_layout import Entry, UnusualError, entries_of, entry_of, length_at


def all_entries(body: bytes) -> dict[bytes, Entry]:
    """Return every entry of an answer's body by its bytes, in their order.

    Raises:
        UnusualError: It is not laid out as brokers lay it out, or one stands twice. So do
            ``IndexError``, ``struct.error`` and ``UnicodeDecodeError`` tell here and below.
    """
    number, begin = length_at(body, 0)
    try:
        entries = read_at_once(body, begin, len(body) - 1)
    except UnusualError:
        entries = {}
    if number == len(entries) and not body[-1]:
        return entries
    entries = {raw: entry_of(raw) for raw in entries_of(body)}
    if number != len(entries):
        raise UnusualError
    return entries


def raw_entries(body: bytes) -> list[bytes]:
    """Return the bytes of every entry of an answer's body, none of them read."""
    number, begin = length_at(body, 0)
    try:
        raws = cut_at_once(body, begin, len(body) - 1)
    except UnusualError:
        raws = []
    return raws if number == len(raws) and not body[-1] else list(entries_of(body))


def these_entries(raws: Sequence[bytes]) -> dict[bytes, Entry]:
    """Return some entries that were cut out already."""
    joined = b"".join(raws)
    try:
        return read_at_once(joined, 0, len(joined))
    except UnusualError:
        return {raw: entry_of(raw) for raw in raws}
