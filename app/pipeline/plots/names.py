"""Buckets and entities as a picture shows them: readable, and never longer than their place."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

LONGEST: Final = 44

_KEYS: Final = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "fetch",
    "request_percentage": "request",
    "controller_mutation_rate": "mutation",
}
_UNITS: Final = {"request_percentage": "% of a thread", "controller_mutation_rate": "mutations/s"}
_DEFAULT: Final = "<default>"


def bucket_name(bucket: Mapping[str, Any]) -> str:
    """Return who spends, as ``{user=alice, client-id=etl}``; the id where no name is known."""
    if bucket.get("bucket_user") is None and bucket.get("bucket_client") is None:
        return f"bucket {bucket['bucket_id']}"
    tags = {"user": bucket["bucket_user"], "client-id": bucket["bucket_client"]}
    parts = [f"{kind}={_quoted(name)}" for kind, name in tags.items() if name]
    return cut("{" + ", ".join(parts) + "}")


def quota_name(bucket: Mapping[str, Any]) -> str:
    """Return the entity of a limit, as ``{user=alice, client-id=<default>}``; '' if unknown."""
    parts = []
    for kind, column in (("user", "quota_user"), ("client-id", "quota_client_id")):
        if bucket.get(f"{column.removesuffix('_id')}_default"):
            parts.append(f"{kind}={_DEFAULT}")
        elif bucket.get(column):
            parts.append(f"{kind}={_quoted(bucket[column])}")
    return cut("{" + ", ".join(parts) + "}") if parts else ""


def key_name(key: str) -> str:
    """Return the short name of a quota key."""
    return _KEYS.get(key, key)


def unit_of(key: str) -> str:
    """Return what its values are measured in."""
    return _UNITS.get(key, "bytes/s")


def amount(value: float, key: str) -> str:
    """Return a value with its unit, bytes by powers of 1,000: ``1.5 MB/s``."""
    if key in _UNITS:
        return f"{value:,.4g} {_UNITS[key]}"
    for size, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.4g} B/s"


def short_amount(value: float, key: str) -> str:
    """Return a value as an axis shows it."""
    return amount(value, key).removesuffix(" of a thread").replace(" mutations", "")


def cut(text: str, longest: int = LONGEST) -> str:
    """Return the text with what the font lacks escaped, and its middle left out if it is long."""
    shown = "".join(
        character if _can_be_drawn(character) else _escaped(character) for character in text
    )
    if len(shown) <= longest:
        return shown
    head = (longest - 1) * 2 // 3
    return f"{shown[:head]}…{shown[len(shown) - (longest - 1 - head) :]}"


def _quoted(name: str) -> str:
    """Tell a user who is really called ``<default>`` from the default entity."""
    return f'"{name}"' if name == _DEFAULT else name


def _can_be_drawn(one: str) -> bool:
    return one.isprintable() and ord(one) in _glyphs()


def _escaped(one: str) -> str:
    return f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"


@cache
def _glyphs() -> frozenset[int]:
    font = FT2Font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())
