"""Resolutions of many identities as JSON; the same text as that of ``resolutions_json``.

Of each pattern one identity is resolved and made a document as ``GET /quotas/resolve`` does it; the
document is the template for the others.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

from app.domain.addresses import canonical_ip
from app.domain.entities import EntityType
from app.domain.resolution_index import Patterns, QuotaIndex, Stored
from app.http.answers import quota_value_json
from app.http.json_text import json_bytes, json_texts
from app.http.resolve.documents import answer_head, resolution_document
from app.http.resolve.templates import NAME, Place, Template
from app.service.queries.resolve import Identity, ResolutionBasis, resolved
from app.service.runtime.offload import without_collection

_USER: Final = EntityType.USER.value
_CLIENT_ID: Final = EntityType.CLIENT_ID.value
_IP: Final = EntityType.IP.value

_LONGEST_KEPT_BYTES: Final = 4096
"""Longer answers, for long names, are written anew each time."""

_MOST_KEPT: Final = 1_000
"""With so many texts, templates or numbers they are forgotten; none has over some kilobytes."""

_K = TypeVar("_K")
_V = TypeVar("_V")

Names = Mapping[str, Sequence[str]]
"""Of many identities, by type, in their order."""


def resolutions_bytes(basis: ResolutionBasis) -> bytes:
    """Return the answer for many identities, in order; ``proposed`` where there was a what-if."""
    head = json_bytes({**answer_head(basis.cluster_id, basis.as_of), "results": []})
    with without_collection():
        return b"".join([head.removesuffix(b"]}"), b",".join(_results(basis)), b"]}"])


def _results(basis: ResolutionBasis) -> Sequence[bytes]:
    identities = basis.query.identities
    present = _Writer(basis.present, basis.callback_class).write(identities)
    if basis.proposed is None:
        return present
    proposed = _Writer(basis.proposed, basis.callback_class).write(identities)
    return [
        b'%b,"proposed":%b}' % (now[:-1], then) for now, then in zip(present, proposed, strict=True)
    ]


def resolution_bytes(basis: ResolutionBasis) -> bytes:
    """Return the answer for one identity; the same text as that of ``resolution_json``.

    The templates are kept with the index. Call it on the event loop only.
    """
    writer = basis.memo.get(basis.callback_class)
    if writer is None:
        writer = _Writer(basis.present, basis.callback_class)
        basis.memo[basis.callback_class] = writer
    return b"%b,%b" % (_head(basis), writer.known(basis.query.identities[0]))


def _head(basis: ResolutionBasis) -> bytes:
    """Return what an answer begins with; most are from the same image as the one before."""
    of = basis.cluster_id, basis.as_of
    known = basis.memo.get(_head)
    if known is None or known[0] != of:
        known = basis.memo[_head] = of, json_bytes(answer_head(*of))[:-1]
    head: bytes = known[1]
    return head


class _Writer:
    """Writes resolutions against one index."""

    def __init__(self, index: QuotaIndex, callback_class: str | None) -> None:
        self._index = index
        self._callback_class = callback_class
        self._patterns = Patterns(index)
        self._templates: dict[Hashable, Template] = {}
        self._numbers: dict[float, bytes] = {}
        self._texts: dict[Identity, bytes] = {}

    def known(self, identity: Identity) -> bytes:
        """Return what ``write_one`` returns without the brace that begins it.

        The same callers are asked for again and again.
        """
        text = self._texts.get(identity)
        if text is None:
            text = self.write_one(identity)[1:]
            if len(text) <= _LONGEST_KEPT_BYTES:
                _keep(self._texts, identity, text)
        return text

    def write_one(self, identity: Identity) -> bytes:
        """Return the resolution of an identity as JSON."""
        if identity.ip is not None:
            return json_bytes(self._document(identity))
        names = {_USER: identity.user or "", _CLIENT_ID: identity.client_id or ""}
        pattern, rules = self._patterns.of_client(names[_USER], names[_CLIENT_ID])
        template = self._templates.get(pattern)
        if template is None:
            template = Template(self._document(identity))
            _keep(self._templates, pattern, template)
        texts = []
        for level, key in template.places:
            rule = None if level == NAME else rules[level - 1]
            texts.append(json_bytes(names[key]) if rule is None else self._number(rule[1][key]))
        return template.fill_one(texts)

    def _number(self, value: float) -> bytes:
        text = self._numbers.get(value)
        if text is None:
            text = json_bytes(quota_value_json(value))
            _keep(self._numbers, value, text)
        return text

    def write(self, identities: Sequence[Identity]) -> Sequence[bytes]:
        """Return the resolution of each identity as JSON, in order."""
        clients = [at for at, one in enumerate(identities) if one.ip is None]
        addresses = [at for at, one in enumerate(identities) if one.ip is not None]
        written: list[bytes] = [b""] * len(identities)
        for places, texts in (
            (clients, self._clients([identities[at] for at in clients])),
            (addresses, self._addresses([identities[at] for at in addresses])),
        ):
            for at, text in zip(places, texts, strict=True):
                written[at] = text
        return written

    def _clients(self, identities: Sequence[Identity]) -> Sequence[bytes]:
        users = [one.user or "" for one in identities]
        client_ids = [one.client_id or "" for one in identities]
        stored = self._patterns.of_clients(users, client_ids)
        return self._written(identities, {_USER: users, _CLIENT_ID: client_ids}, stored)

    def _addresses(self, identities: Sequence[Identity]) -> Sequence[bytes]:
        addresses = [canonical_ip(one.ip or "") for one in identities]
        stored = self._patterns.of_addresses(addresses)
        return self._written(identities, {_IP: [one or "" for one in addresses]}, stored)

    def _written(
        self, identities: Sequence[Identity], names: Names, stored: Stored
    ) -> Sequence[bytes]:
        groups: dict[Hashable, list[int]] = {}
        for at, pattern in enumerate(stored.patterns):
            groups.setdefault(pattern, []).append(at)
        written: list[bytes] = [b""] * len(identities)
        texts = {kind: json_texts(column) for kind, column in names.items()}
        for pattern, group in groups.items():
            if pattern is None or len(group) == 1:
                for at in group:
                    written[at] = json_bytes(self._document(identities[at]))
                continue
            template = Template(self._document(identities[group[0]]))
            columns = [_column(place, group, texts, stored) for place in template.places]
            for at, text in zip(group, template.fill(columns), strict=True):
                written[at] = text
        return written

    def _document(self, identity: Identity) -> dict[str, object]:
        return resolution_document(resolved(self._index, identity), self._callback_class)


def _keep(kept: dict[_K, _V], key: _K, value: _V) -> None:
    if len(kept) >= _MOST_KEPT:
        kept.clear()
    kept[key] = value


def _column(
    place: Place, group: Sequence[int], texts: Mapping[str, Sequence[bytes]], stored: Stored
) -> Sequence[bytes]:
    """Return what stands in a place, in JSON, for each of a group."""
    level, key = place
    if level == NAME:
        column = texts[key]
        return [column[at] for at in group]
    rules = map(stored.rules[level].__getitem__, group)
    values = [rule[1][key] for rule in rules if rule is not None]
    distinct = list(set(values))
    numbers = json_texts([quota_value_json(value) for value in distinct])
    return list(map(dict(zip(distinct, numbers, strict=True)).__getitem__, values))
