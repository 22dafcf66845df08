"""Many entries as they stand in ``quotas``, written a few hundred at a time."""

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

import orjson

from app.domain.alterations import Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.http.answers import quota_json, values_json
from app.http.json_text import json_bytes

Entry = tuple[ClientQuotaEntity, Values]

_AT_ONCE: Final = 500
_ENTRY: Final = b'{"entity":%b,"entity_key":"%b","values":%b}'
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_RANKS: Final[Mapping[str, int]] = {kind.value: rank for rank, kind in enumerate(ENTITY_TYPES)}


class _Layout(NamedTuple):
    """How entities of the same types are written.

    Attributes:
        canonical: What ``entity_key`` encodes; %b for each name.
        shown: The entity; %b for each name, in another order.
        rearranged: Brings names from the canonical order into that one.
    """

    canonical: bytes
    shown: bytes
    rearranged: Callable[[tuple[bytes, ...]], object]


def entry_texts(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield each entry as ``json_bytes(quota_json(entity, values))`` writes it."""
    layouts: dict[tuple[str, ...], _Layout] = {}
    left = iter(entries)
    while some := list(islice(left, _AT_ONCE)):
        try:
            yield from _texts(some, layouts)
        except TypeError:  # a lone surrogate, which no broker sends
            yield from (json_bytes(quota_json(entity, values)) for entity, values in some)


def _texts(entries: Sequence[Entry], layouts: dict[tuple[str, ...], _Layout]) -> list[bytes]:
    names = [name for entity, _ in entries for _, name in entity.entries]
    whole = orjson.dumps(names, option=orjson.OPT_INDENT_2)
    texts = tuple(whole.removeprefix(b"[\n  ").removesuffix(b"\n]").split(b",\n  "))
    shown: list[bytes] = []
    keys: list[bytes] = []
    at = 0
    for entity, _ in entries:
        parts = entity.entries
        end = at + len(parts)
        if end == at + 1:
            kinds: tuple[str, ...] = (parts[0][0],)
        else:
            kinds = tuple([kind for kind, _ in parts])
        layout = layouts.get(kinds)
        if layout is None:
            layout = layouts[kinds] = _layout(kinds)
        own = texts[at:end]
        at = end
        keys.append(b2a_base64(layout.canonical % own, newline=False))
        shown.append(layout.shown % layout.rearranged(own))
    keys = b"\n".join(keys).translate(_URL_SAFE, b"=").split(b"\n")
    return list(map(_ENTRY.__mod__, zip(shown, keys, _values(entries), strict=True)))


def _layout(kinds: Sequence[str]) -> _Layout:
    places = sorted(range(len(kinds)), key=lambda at: (_RANKS.get(kinds[at], len(_RANKS)), at))
    rearranged = itemgetter(*places) if places else tuple
    return _Layout(_object(kinds), _object([kinds[at] for at in places]), rearranged)


def _object(kinds: Sequence[str]) -> bytes:
    members = (orjson.dumps(kind).replace(b"%", b"%%") + b":%b" for kind in kinds)
    return b"{" + b",".join(members) + b"}"


def _values(entries: Sequence[Entry]) -> Iterator[bytes]:
    """Yield the values of each entry; many entries share theirs."""
    known: dict[int, bytes] = {}
    for _, values in entries:
        text = known.get(id(values))
        if text is None:
            text = known[id(values)] = json_bytes(values_json(values))
        yield text
