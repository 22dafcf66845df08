"""Resolution: which limit applies to a caller, for each key, and why.

Brokers have no call for it. A callback decides (KIP-257), Kafka's own rules where there is no
other; the stored quotas beside it are the reasons.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.callbacks.callback import QUOTA_TYPES, ResolvingCallback
from app.domain.callbacks.kafka_rules import NOTHING, KafkaQuotaCallback
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType, entity_warnings
from app.domain.quota_keys import QuotaKey
from app.domain.resolution_index import QuotaIndex, Spellings
from app.domain.resolution_levels import (
    HIDDEN_CLIENT_RULES,
    IP_PRECEDENCE,
    PRECEDENCE,
    ConfiguredQuota,
    LevelTried,
    Resolution,
    ResolvedQuota,
    applicable_levels,
    client_levels,
    host_names_note,
    ip_levels,
    source_level,
    spelling_note,
    value_notes,
    why_not,
)

_DEFAULT_USER: Final = 6
"""The level of the rule for the default user alone: the last one that bears a user."""


def resolve_client(
    index: QuotaIndex,
    user: str,
    client_id: str | None,
    *,
    explain: bool = False,
    callback: ResolvingCallback | None = None,
) -> Resolution:
    """Return what applies to a user and client-id; an empty client-id equals none.

    Either name may be empty, which leaves fewer levels: see ``applicable_levels``.

    Args:
        index: The stored quotas.
        user: The principal's name, without its type.
        client_id: As in the request's header.
        explain: Fill in ``levels``.
        callback: What decides, over the same quotas; null is Kafka's own rules.

    Raises:
        CallbackFailedError: A callback that is not this service's raised an error.
    """
    client_id = client_id or ""
    decides = callback or KafkaQuotaCallback(index)
    principal, ignored = f"User:{user}", decides.why_ignored(user, client_id)
    identity = {"user": user, "client-id": client_id} if client_id else {"user": user}
    quotas: dict[QuotaKey, ResolvedQuota] = {}
    notes = [warning.detail for warning in entity_warnings(ClientQuotaEntity.of(identity))]
    stored = decides.stored(user, client_id)
    for quota_type in QUOTA_TYPES:
        key = quota_type.key
        tags = decides.quota_metric_tags(quota_type, principal, client_id)
        decision = decides.decide(quota_type, tags)
        limit, source, by_broker = decision
        having, overridden = stored.get(key, NOTHING), NOTHING
        if ignored is None and having:
            if source is not None:
                overridden = _applying(having, user, client_id)[1:]
            if not (user and client_id):
                notes += _missing_name_notes(key, having, user, client_id)
        levels: tuple[LevelTried, ...] = ()
        if explain:
            hidden = HIDDEN_CLIENT_RULES if _hides_clients(having, user, client_id) else None
            tried = client_levels(having, user, client_id, barred=ignored or hidden)
            levels = source_level(source, tried)
        quota = ResolvedQuota(key, limit, source, tags, tuple(overridden), levels, by_broker)
        quotas[key] = quota
        if limit is not None:
            notes += value_notes(quota)
        notes += decides.notes(quota_type, decision)
    if ignored is not None:
        notes.append(ignored)
    return Resolution(identity, quotas, tuple(notes))


def _applying(
    having: Sequence[ConfiguredQuota], user: str, client_id: str
) -> Sequence[ConfiguredQuota]:
    """Return what can limit these names, the one that decides first."""
    if user and client_id:
        return having
    levels = applicable_levels(user, client_id)
    return [quota for quota in having if quota.level in levels]


def _hides_clients(having: Sequence[ConfiguredQuota], user: str, client_id: str) -> bool:
    """Tell whether an empty user name selects the default user's bucket, which has no name."""
    if user or not client_id or not having:
        return False
    return having[0].level == _DEFAULT_USER


def _missing_name_notes(
    key: QuotaKey, having: Sequence[ConfiguredQuota], user: str, client_id: str
) -> list[str]:
    """Say why the first value found does not apply to a caller with an empty name."""
    first = having[0]
    reason = why_not(PRECEDENCE[first.level - 1], user, client_id)
    if reason is None:
        return []
    notes = [f"{key}: level {first.level} ({first.name}) has a value. {reason}"]
    if _hides_clients(having, user, client_id) and having[-1].level > _DEFAULT_USER:
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
