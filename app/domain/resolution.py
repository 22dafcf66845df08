"""Resolution: which stored quota applies to a caller, for each key, and why.

Brokers have no call for it. This is what ``ClientQuotaManager`` and ``ConnectionQuotas`` do with
the default ``client.quota.callback.class``; another callback may decide otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType, entity_warnings
from app.domain.quota_keys import QuotaKey
from app.domain.resolution_index import CLIENT_KEYS, QuotaIndex, Spellings
from app.domain.resolution_levels import (
    HIDDEN_CLIENT_RULES,
    IP_PRECEDENCE,
    PRECEDENCE,
    Bucket,
    ConfiguredQuota,
    Resolution,
    ResolvedQuota,
    applicable_levels,
    client_levels,
    host_names_note,
    ip_levels,
    spelling_note,
    value_notes,
    why_not,
)

_DEFAULT_USER: Final = 6
"""The level of the rule for the default user alone: the last one that bears a user."""

_NOTHING: Final[Sequence[ConfiguredQuota]] = ()


def resolve_client(
    index: QuotaIndex, user: str, client_id: str | None, *, explain: bool = False
) -> Resolution:
    """Return what applies to a user and client-id; an empty client-id equals none.

    For each key on its own, the first of the eight levels that has the key decides. Either name
    may be empty, which leaves fewer levels: see ``applicable_levels``.

    Args:
        index: The stored quotas.
        user: The principal's name, without its type.
        client_id: As in the request's header.
        explain: Fill in ``levels``.

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """
    caller = _Caller(user, client_id or "")
    stored = index.client_values(user, caller.client_id)
    quotas: dict[QuotaKey, ResolvedQuota] = {}
    notes = [warning.detail for warning in entity_warnings(ClientQuotaEntity.of(caller.identity))]
    for key in CLIENT_KEYS:
        having = stored.get(key, _NOTHING)
        quota = _resolve_key(index, key, having, caller)
        if explain:
            hidden = caller.hides_client_rules(having)
            levels = client_levels(having, user, caller.client_id, hidden=hidden)
            quota = quota._replace(levels=levels)
        quotas[key] = quota
        notes += _missing_name_notes(key, having, caller)
        notes += value_notes(quota)
    return Resolution(caller.identity, quotas, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Caller:
    user: str
    client_id: str

    @property
    def identity(self) -> dict[str, str]:
        if not self.client_id:
            return {"user": self.user}
        return {"user": self.user, "client-id": self.client_id}

    def tags(self, bucket: Bucket) -> dict[str, str]:
        return {
            "user": "" if bucket is Bucket.CLIENT_ID else self.user,
            "client-id": "" if bucket is Bucket.USER else self.client_id,
        }

    def applying(self, having: Sequence[ConfiguredQuota]) -> Sequence[ConfiguredQuota]:
        if self.user and self.client_id:
            return having
        if self.hides_client_rules(having):
            return _NOTHING
        levels = applicable_levels(self.user, self.client_id)
        return [quota for quota in having if quota.level in levels]

    def hides_client_rules(self, having: Sequence[ConfiguredQuota]) -> bool:
        """Tell whether an empty user name selects the default user's bucket, which has no name."""
        if self.user or not self.client_id or not having:
            return False
        return having[0].level == _DEFAULT_USER


def _resolve_key(
    index: QuotaIndex, key: QuotaKey, having: Sequence[ConfiguredQuota], caller: _Caller
) -> ResolvedQuota:
    applying = caller.applying(having)
    if not applying:
        tags = caller.tags(_bucket_of_unlimited(index.lone_kind(key), having))
        return ResolvedQuota(key, None, None, tags, ())
    source = applying[0]
    tags = caller.tags(PRECEDENCE[source.level - 1].bucket)
    return ResolvedQuota(key, source.value, source, tags, tuple(applying[1:]))


def _bucket_of_unlimited(lone_kind: Bucket | None, having: Sequence[ConfiguredQuota]) -> Bucket:
    """Return who shares the bucket of a caller without any limit.

    Source: ``quotaMetricTags``: a single kind of rules decides alone, several try the levels; no
    rule, or rules for other names only, leaves the client-id.
    """
    if lone_kind is not None:
        return lone_kind
    return PRECEDENCE[having[0].level - 1].bucket if having else Bucket.CLIENT_ID


def _missing_name_notes(
    key: QuotaKey, having: Sequence[ConfiguredQuota], caller: _Caller
) -> list[str]:
    """Say why the first value found does not apply to a caller with an empty name."""
    if not having or (caller.user and caller.client_id):
        return []
    first = having[0]
    reason = why_not(PRECEDENCE[first.level - 1], caller.user, caller.client_id)
    if reason is None:
        return []
    notes = [f"{key}: level {first.level} ({first.name}) has a value. {reason}"]
    if caller.hides_client_rules(having) and having[-1].level > _DEFAULT_USER:
        notes.append(f"{key}: {HIDDEN_CLIENT_RULES}")
    return notes


_KEY: Final = QuotaKey.CONNECTION_CREATION_RATE


def resolve_ip(index: QuotaIndex, ip: str, *, explain: bool = False) -> Resolution:
    """Return what applies to connections from an address: its own rule, else the default's.

    Of several stored spellings of the address the canonical one is taken, else the first by name;
    a note names the others. Rules for users never apply to connections.

    Raises:
        ValueError: Not a literal IPv4 or IPv6 address.

    Source: ``SocketServer.ConnectionQuotas``, ``ClientQuotaMetadataManager``.
    """
    address = canonical_ip(ip)
    if address is None:
        message = f"{ip!r} is not a literal IPv4 or IPv6 address"
        raise ValueError(message)
    own = _canonical_first(address, index.spellings.get(address) or ())
    default = index.spellings.get(DEFAULT_NAME) or ()
    having = tuple(
        ConfiguredQuota(entity, *row, limit)
        for row, rules in zip(IP_PRECEDENCE, (own, default), strict=True)
        for entity, limit in rules[:1]
    )
    quota = ResolvedQuota(
        key=_KEY,
        value=having[0].value if having else None,
        source=having[0] if having else None,
        shared_by={"ip": address},
        overridden=having[1:],
        levels=ip_levels(having, address) if explain else (),
    )
    return Resolution({"ip": address}, {_KEY: quota}, tuple(_notes(index, address, own, quota)))


def _canonical_first(address: str, rules: Spellings) -> Spellings:
    if len(rules) <= 1:
        return rules
    canonical = ClientQuotaEntity.of({EntityType.IP: address})
    return tuple(sorted(rules, key=lambda rule: (rule[0] != canonical, rule[0].sort_key())))


def _notes(index: QuotaIndex, address: str, own: Spellings, quota: ResolvedQuota) -> Iterator[str]:
    names = [str(dict(entity.entries)[EntityType.IP]) for entity, _ in own]
    if names and names != [address]:
        yield spelling_note(address, names)
    if index.host_names:
        yield host_names_note(index.host_names)
    yield from value_notes(quota)
