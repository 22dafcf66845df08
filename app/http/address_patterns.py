"""Literal addresses as regular expressions, for readers that have no ``format``.

They accept what ``canonical_ip`` accepts, no more and no less.
"""

from collections.abc import Iterator
from typing import Final

_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_DOTTED: Final = rf"{_OCTET}(\.{_OCTET}){{3}}"
_GROUP: Final = "[0-9A-Fa-f]{1,4}"
_GROUPS: Final = 8

IPV4_PATTERN: Final = f"^{_DOTTED}$"
"""Four numbers from 0 to 255 without leading zeros."""


def _full(groups: int) -> str:
    return f"({_GROUP}:){{{groups - 1}}}{_GROUP}" if groups > 1 else _GROUP


def _up_to(groups: int) -> str:
    return f"({_GROUP}(:{_GROUP}){{0,{groups - 1}}})?" if groups else ""


def _forms() -> Iterator[str]:
    """Yield each form: in full, or abbreviated after so many groups; the end may be dotted."""
    yield _full(_GROUPS)
    yield f"({_GROUP}:){{6}}{_DOTTED}"
    for before in range(_GROUPS):
        head = _full(before) if before else ""
        after = _GROUPS - 1 - before
        yield f"{head}::{_up_to(after)}"
        if after >= 2:
            yield f"{head}::({_GROUP}:){{0,{after - 2}}}{_DOTTED}"


IPV6_PATTERN: Final = f"^({'|'.join(_forms())})$"
"""Eight groups, one run of them abbreviated or none, the last two perhaps as IPv4; no zone.

Source: RFC 4291 2.2.
"""
