"""Content negotiation by ``Accept``. Source: RFC 9110 12.5.1."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_WEIGHT: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


@dataclass(frozen=True, slots=True)
class _MediaRange:
    kind: str
    subtype: str
    weight: float

    def specificity(self, media_type: str) -> int:
        """Return 0 for no match, up to 3 for the exact type."""
        kind, _, subtype = media_type.partition("/")
        if (self.kind, self.subtype) == (kind, subtype):
            return 3
        if (self.kind, self.subtype) == (kind, "*"):
            return 2
        return int((self.kind, self.subtype) == ("*", "*"))


def chosen(accept: str | None, offered: Sequence[str]) -> str | None:
    """Return the offered media type that the caller likes best; null if none is acceptable.

    The most specific range decides about a type; among equals the first offered wins. Parameters
    other than ``q`` are ignored, and so is an element that is no media range.

    Args:
        accept: The header, several joined with commas; null or blank accepts everything.
        offered: Media types, the default first.
    """
    if accept is None or not accept.strip():
        return offered[0]
    ranges = list(_ranges(accept))
    best = max(offered, key=lambda media_type: _weight(media_type, ranges))
    return best if _weight(best, ranges) > 0 else None


def _weight(media_type: str, ranges: Sequence[_MediaRange]) -> float:
    matching = [(one.specificity(media_type), one.weight) for one in ranges]
    specificity, weight = max(matching, default=(0, 0.0))
    return weight if specificity else 0.0


def _ranges(accept: str) -> Iterator[_MediaRange]:
    for element in accept.split(","):
        name, *parameters = (part.strip().lower() for part in element.split(";"))
        kind, slash, subtype = name.partition("/")
        weight = _quality(parameters)
        if slash and kind and subtype and weight is not None:
            yield _MediaRange(kind, subtype, weight)


def _quality(parameters: Sequence[str]) -> float | None:
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip() == "q":
            return float(text) if _WEIGHT.fullmatch(text.strip()) else None
    return 1.0
