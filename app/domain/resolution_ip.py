"""What applies to connections from an address."""

from collections.abc import Iterator
from typing import Final

from app.domain.addresses import canonical_ip
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType
from app.domain.quota_keys import QuotaKey
from app.domain.resolution_explain import ip_levels
from app.domain.resolution_index import QuotaIndex, Spellings
from app.domain.resolution_levels import IP_PRECEDENCE
from app.domain.resolution_notes import host_names_note, spelling_note, value_notes
from app.domain.resolution_values import ConfiguredQuota, Resolution, ResolvedQuota

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
        ConfiguredQuota(entity, row.level, row.source, limit)
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
