"""Resolutions in JSON: one as a document, many written by pattern."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.domain.addresses import canonical_ip
from app.domain.alterations import JsonNumber, quota_value_json
from app.domain.entities import EntityType
from app.domain.expiry import NO_EXPIRIES, Expiries, temporary_of
from app.domain.plan_impact import BucketName, bucket_of
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey
from app.domain.resolution_index import Patterns, QuotaIndex, Stored
from app.domain.resolution_levels import ConfiguredQuota, LevelTried, Resolution, ResolvedQuota
from app.http.analytics.models import Usage
from app.http.models import (
    answer_head,
    entity_json,
    json_bytes,
    json_texts,
    rfc3339,
    stored_json,
)
from app.service.queries.analytics import BucketUsage
from app.service.queries.callbacks import CallbackInUse
from app.service.queries.resolve import Identity, ResolutionBasis, resolved
from app.service.runtime.tasks import pause_gc


def resolution_document(
    resolution: Resolution, rules: CallbackInUse, expiries: Expiries = NO_EXPIRIES
) -> dict[str, Any]:
    """Return one resolution, of which ``Template`` is made; with its levels where it has them.

    A source whose value is for a time says so. It has the members of ``ProposedResolution``, whose
    validation would take three times as long.
    """
    return {
        "identity": dict(resolution.identity),
        "authoritative": rules.is_authoritative,
        "callback": {"class": rules.class_name, "model": rules.model.name},
        "quotas": {
            key.value: _quota_json(quota, expiries) for key, quota in resolution.quotas.items()
        },
        "notes": [*resolution.notes, *rules.notes],
    }


def _quota_json(quota: ResolvedQuota, expiries: Expiries) -> dict[str, Any]:
    rule = QUOTA_KEY_RULES[quota.key]
    document: dict[str, Any] = {
        "value": _value_json(quota.value),
        "unit": rule.unit,
        "scope": rule.scope.value,
        "source": None if quota.source is None else _source_json(quota, quota.source, expiries),
        "shared_by": dict(quota.shared_by),
        "overridden": [
            {**_level_json(item), "value": quota_value_json(item.value)}
            for item in quota.overridden
        ],
    }
    if quota.by_broker is not None:
        document["by_broker"] = {
            str(broker): quota_value_json(limit) for broker, limit in quota.by_broker.items()
        }
    if quota.levels:
        document["levels"] = [
            {
                **_level_json(item),
                "value": _value_json(item.value),
                "applies": item.applies,
                "reason": item.reason,
            }
            for item in quota.levels
        ]
    return document


def _source_json(
    quota: ResolvedQuota, source: ConfiguredQuota, expiries: Expiries
) -> dict[str, Any]:
    held = temporary_of(source.entity, {quota.key.value: source.value}, expiries)
    ends = held.get(quota.key.value)
    if ends is None:
        return _level_json(source)
    return {
        **_level_json(source),
        "temporary": {
            "expires_at": rfc3339(ends.expires_at),
            "returns_to": stored_json(ends.returns_to),
        },
    }


def _level_json(found: ConfiguredQuota | LevelTried) -> dict[str, Any]:
    return {"entity": entity_json(found.entity), "level": found.level, "name": str(found.name)}


def _value_json(value: float | None) -> JsonNumber | None:
    return None if value is None else quota_value_json(value)


_NOT_NOW: Final = "The usage is left out: the database that holds it does not answer now."


def buckets_of(resolution: Resolution) -> Mapping[QuotaKey, BucketName]:
    """Return the bucket of each key; an address has none that the pipeline knows."""
    return {
        key: bucket_of(quota)
        for key, quota in resolution.quotas.items()
        if "ip" not in quota.shared_by
    }


def add_usage(
    document: dict[str, Any],
    resolution: Resolution,
    usage: Mapping[BucketName, BucketUsage] | None,
) -> None:
    """Put ``usage`` beside each quota of a document; null is a database in trouble."""
    buckets = buckets_of(resolution)
    for key in resolution.quotas:
        bucket = buckets.get(key)
        spent = None if usage is None or bucket is None else usage.get(bucket)
        content = None if spent is None else Usage.model_validate(spent).model_dump()
        document["quotas"][key.value]["usage"] = content
    if usage is None:
        document["notes"].append(_NOT_NOW)


class Variable(NamedTuple):
    """What differs within a pattern.

    Attributes:
        level: Where a number is stored; ``NAME`` for a name.
        key: The quota key of the number, or the type of the name.
    """

    level: int
    key: str


NAME: Final = 0


class Template:
    """The document of one identity, to be filled in for others of the same pattern."""

    def __init__(self, document: dict[str, Any]) -> None:
        _insert_variables(document)
        texts = list(_texts(document))
        in_order = [text for text in texts if isinstance(text, Variable)]
        self.variables = list(dict.fromkeys(in_order))
        self._order = [self.variables.index(variable) for variable in in_order]
        self._text = b"".join(
            b"%b" if isinstance(text, Variable) else text.replace(b"%", b"%%") for text in texts
        )

    def fill(self, columns: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Return documents as JSON; ``columns`` has for each variable the texts of all."""
        text = self._text
        return [text % row for row in zip(*[columns[at] for at in self._order], strict=True)]


def _insert_variables(document: dict[str, Any]) -> None:
    """Put variables into a document, for its identity's names and for stored numbers."""
    identity = dict(document["identity"])
    _replace_names(document["identity"], identity)
    for key, quota in document["quotas"].items():
        _replace_names(quota["shared_by"], identity)
        source = quota["source"]
        if source is not None:
            _replace_names(source["entity"], identity)
            quota["value"] = Variable(source["level"], key)
        for item in quota["overridden"]:
            _replace_names(item["entity"], identity)
            item["value"] = Variable(item["level"], key)


def _replace_names(names: dict[str, Any], identity: Mapping[str, str]) -> None:
    for kind, name in names.items():
        if name is not None and name == identity.get(kind):
            names[kind] = Variable(NAME, kind)


def _texts(value: Any) -> Iterator[bytes | Variable]:
    """Yield JSON, as ``json_bytes`` writes it, between the variables that stand in a value."""
    if isinstance(value, Variable):
        yield value
    elif isinstance(value, dict):
        separator = b"{"
        for name, member in value.items():
            yield b"%b%b:" % (separator, json_bytes(name))
            yield from _texts(member)
            separator = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, list):
        separator = b"["
        for item in value:
            yield separator
            yield from _texts(item)
            separator = b","
        yield b"]" if value else b"[]"
    else:
        yield json_bytes(value)


_USER: Final = EntityType.USER.value
_CLIENT_ID: Final = EntityType.CLIENT_ID.value
_IP: Final = EntityType.IP.value

Names = Mapping[str, Sequence[str]]
"""Of many identities, by type, in their order."""


def resolutions_bytes(
    basis: ResolutionBasis,
    expiries: Expiries = NO_EXPIRIES,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the answer for many identities, in order; ``proposed`` where there was a what-if.

    ``expiries`` is what is for a time, ``more`` are other members of it.
    """
    head = answer_head(basis.image.cluster_id, basis.image.as_of)
    head_bytes = json_bytes({**head, **(more or {}), "results": []})
    with pause_gc():
        return b"".join(
            [head_bytes.removesuffix(b"]}"), b",".join(_results(basis, expiries)), b"]}\n"]
        )


def _results(basis: ResolutionBasis, expiries: Expiries) -> Sequence[bytes]:
    identities = basis.query.identities
    rules = basis.image.rules
    present = _Writer(basis.image.index, rules, expiries).write(identities)
    if basis.proposed is None:
        return present
    proposed = _Writer(basis.proposed, rules, expiries).write(identities)
    return [
        b'%b,"proposed":%b}' % (now[:-1], then) for now, then in zip(present, proposed, strict=True)
    ]


class _Writer:
    def __init__(self, index: QuotaIndex, rules: CallbackInUse, expiries: Expiries) -> None:
        self._index = index
        self._expiries = expiries
        self._rules = rules
        self._callback = rules.over(index)
        self._patterns = Patterns(index)

    def write(self, identities: Sequence[Identity]) -> Sequence[bytes]:
        """Return the resolution of each identity as JSON, in order."""
        clients = [at for at, item in enumerate(identities) if item.ip is None]
        addresses = [at for at, item in enumerate(identities) if item.ip is not None]
        written: list[bytes] = [b""] * len(identities)
        for fields, texts in (
            (clients, self._clients([identities[at] for at in clients])),
            (addresses, self._addresses([identities[at] for at in addresses])),
        ):
            for at, text in zip(fields, texts, strict=True):
                written[at] = text
        return written

    def _clients(self, identities: Sequence[Identity]) -> Sequence[bytes]:
        """Write by pattern where Kafka's rules decide; another callback is asked for each."""
        if not self._rules.is_kafkas:
            return [json_bytes(self._document(each)) for each in identities]
        users = [item.user or "" for item in identities]
        client_ids = [item.client_id or "" for item in identities]
        stored = self._patterns.of_clients(users, client_ids)
        return self._write(identities, {_USER: users, _CLIENT_ID: client_ids}, stored)

    def _addresses(self, identities: Sequence[Identity]) -> Sequence[bytes]:
        addresses = [canonical_ip(item.ip or "") for item in identities]
        stored = self._patterns.of_addresses(addresses)
        return self._write(identities, {_IP: [item or "" for item in addresses]}, stored)

    def _write(
        self, identities: Sequence[Identity], names: Names, stored: Stored
    ) -> Sequence[bytes]:
        groups: dict[Hashable, list[int]] = {}
        ending = self._ending(stored)
        for at, pattern in enumerate(stored.patterns):
            groups.setdefault(None if at in ending else pattern, []).append(at)
        written: list[bytes] = [b""] * len(identities)
        texts = {kind: json_texts(column) for kind, column in names.items()}
        for pattern, group in groups.items():
            if pattern is None or len(group) == 1:
                for at in group:
                    written[at] = json_bytes(self._document(identities[at]))
                continue
            template = Template(self._document(identities[group[0]]))
            columns = [_column(variable, group, texts, stored) for variable in template.variables]
            for at, text in zip(group, template.fill(columns), strict=True):
                written[at] = text
        return written

    def _ending(self, stored: Stored) -> set[int]:
        """Return where something that is for a time may apply: no pattern has that."""
        if not self._expiries:
            return set()
        return {
            at
            for rules in stored.rules.values()
            for at, rule in enumerate(rules)
            if rule is not None and rule[0] in self._expiries
        }

    def _document(self, identity: Identity) -> dict[str, object]:
        resolution = resolved(self._index, identity, self._callback)
        return resolution_document(resolution, self._rules, self._expiries)


def _column(
    variable: Variable, group: Sequence[int], texts: Mapping[str, Sequence[bytes]], stored: Stored
) -> Sequence[bytes]:
    level, key = variable
    if level == NAME:
        column = texts[key]
        return [column[at] for at in group]
    rules = map(stored.rules[level].__getitem__, group)
    values = [rule[1][key] for rule in rules if rule is not None]
    distinct = list(set(values))
    numbers = json_texts([quota_value_json(value) for value in distinct])
    return list(map(dict(zip(distinct, numbers, strict=True)).__getitem__, values))
