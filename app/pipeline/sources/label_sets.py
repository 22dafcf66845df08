"""The labels of a series, whatever their writer calls them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from app.pipeline.sources.points import Labels

NAME: Final = "__name__"

_PLACES: Final[Mapping[str, tuple[str, int]]] = {
    "clusterid": ("cluster", 0),
    "cluster": ("cluster", 1),
    "brokerid": ("broker", 0),
    "broker": ("broker", 1),
    "instance": ("instance", 0),
    "resource": ("resource", 0),
    "user": ("user", 0),
    "clientid": ("client_id", 0),
    "name": ("metric", 0),
}
"""A label in lower case without - and _: what it is, and which wins where several are it."""


def labels_of(told: object) -> Labels | None:
    """Return the labels of a JSON object; null where it is none, or a value is no text."""
    if not isinstance(told, dict):
        return None
    try:
        return _labels_of(tuple(told.items()))
    except TypeError:
        return None


@lru_cache(maxsize=100_000)
def _labels_of(told: tuple[tuple[str, object], ...]) -> Labels | None:
    found: dict[str, tuple[tuple[int, str], str]] = {}
    for name, value in told:
        if value is not None and not isinstance(value, str):
            return None
        plain = name.lower().replace("-", "").replace("_", "")
        place = _PLACES.get(plain)
        if place is None or not value or (plain == "name" and name != NAME):
            continue
        what, rank = place
        # Of several spellings the one that sorts first wins, so that their order says nothing.
        found[what] = min(found.get(what, ((9, ""), "")), ((rank, name), value))
    return Labels(**{what: value for what, (_, value) in found.items()})
