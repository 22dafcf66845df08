"""The levels that a quota can come from, the result of a resolution, and its explanation.

The explanation is the levels that were tried, and notes about odd values.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType
from app.domain.quota_keys import INT_MAX, QUOTA_KEY_RULES, TWO_TO_63, QuotaKey, Scope


class QuotaSource(StrEnum):
    """The name of a level that a quota can come from."""

    USER_CLIENT_ID = "user-client-id"
    USER_DEFAULT_CLIENT_ID = "user-default-client-id"
    USER = "user"
    DEFAULT_USER_CLIENT_ID = "default-user-client-id"
    DEFAULT_USER_DEFAULT_CLIENT_ID = "default-user-default-client-id"
    DEFAULT_USER = "default-user"
    CLIENT_ID = "client-id"
    DEFAULT_CLIENT_ID = "default-client-id"
    IP = "ip"
    DEFAULT_IP = "default-ip"


class Slot(IntEnum):
    """How an entity type occurs in a rule: not at all, as the default entity, or by name."""

    ABSENT = 0
    DEFAULT = 1
    NAMED = 2


class Bucket(StrEnum):
    """Which names of a caller tag the bucket that it spends from; the other tag is empty."""

    USER_CLIENT_ID = "user,client-id"
    USER = "user"
    CLIENT_ID = "client-id"


@dataclass(frozen=True, slots=True)
class PrecedenceLevel:
    """One of the eight levels for a user and client-id; level 1 is the most specific.

    Attributes:
        user: How the rule's entity names the user.
        client_id: How it names the client-id.
        bucket: Who shares the limit that comes from here.
    """

    level: int
    source: QuotaSource
    user: Slot
    client_id: Slot
    bucket: Bucket


_BOTH, _USER, _CLIENT = Bucket.USER_CLIENT_ID, Bucket.USER, Bucket.CLIENT_ID
_NAMED, _DEFAULT, _ABSENT = Slot.NAMED, Slot.DEFAULT, Slot.ABSENT

PRECEDENCE: Final = (
    # level              source                                      user      client-id bucket
    PrecedenceLevel(1, QuotaSource.USER_CLIENT_ID,                 _NAMED,   _NAMED,   _BOTH),
    PrecedenceLevel(2, QuotaSource.USER_DEFAULT_CLIENT_ID,         _NAMED,   _DEFAULT, _BOTH),
    PrecedenceLevel(3, QuotaSource.USER,                           _NAMED,   _ABSENT,  _USER),
    PrecedenceLevel(4, QuotaSource.DEFAULT_USER_CLIENT_ID,         _DEFAULT, _NAMED,   _BOTH),
    PrecedenceLevel(5, QuotaSource.DEFAULT_USER_DEFAULT_CLIENT_ID, _DEFAULT, _DEFAULT, _BOTH),
    PrecedenceLevel(6, QuotaSource.DEFAULT_USER,                   _DEFAULT, _ABSENT,  _USER),
    PrecedenceLevel(7, QuotaSource.CLIENT_ID,                      _ABSENT,  _NAMED,   _CLIENT),
    PrecedenceLevel(8, QuotaSource.DEFAULT_CLIENT_ID,              _ABSENT,  _DEFAULT, _CLIENT),
)  # fmt: skip
"""The eight levels, in the order in which they are tried for each key.

Source: Kafka's documentation, "Quota Configuration"; ``ClientQuotaManager``.
"""

IP_PRECEDENCE: Final = ((1, QuotaSource.IP), (2, QuotaSource.DEFAULT_IP))
"""The two levels for an address: its own rule, the default's. Source:
``SocketServer.ConnectionQuotas``."""


class ConfiguredQuota(NamedTuple):
    """A stored value of one key and its level; ``name`` is the level's name."""

    entity: ClientQuotaEntity
    level: int
    name: str
    value: float


class LevelTried(NamedTuple):
    """One level as it was tried.

    Attributes:
        value: What is stored there for the key, or null.
        applies: Whether the level can apply to this identity at all.
        reason: Why it cannot, or null.
    """

    entity: ClientQuotaEntity
    level: int
    name: str
    value: float | None
    applies: bool
    reason: str | None


class ResolvedQuota(NamedTuple):
    """What applies for one key.

    Attributes:
        value: As stored, in the key's unit; null = unlimited.
        source: Where the value comes from; null where no stored quota decides.
        shared_by: The metric tags of the bucket, not encoded: user and client-id, or ip, or what a
            broker's callback says.
        overridden: The less specific entities that would apply, in turn, without the source.
        levels: Every level tried, most specific first; empty unless asked for.
        by_broker: The limit on each broker, where they differ.
    """

    key: QuotaKey
    value: float | None
    source: ConfiguredQuota | None
    shared_by: Mapping[str, str]
    overridden: tuple[ConfiguredQuota, ...]
    levels: tuple[LevelTried, ...] = ()
    by_broker: Mapping[int, float] | None = None

    @property
    def unit(self) -> str:
        """The unit of the value, such as ``bytes/s``."""
        return QUOTA_KEY_RULES[self.key].unit

    @property
    def scope(self) -> Scope:
        """Where the limit is enforced."""
        return QUOTA_KEY_RULES[self.key].scope


@dataclass(frozen=True, slots=True)
class Resolution:
    """What applies to one identity.

    Attributes:
        identity: ``user`` and ``client-id`` (left out when empty), or ``ip`` in canonical text.
        quotas: One entry for every key that the identity can be limited by.
        notes: Sentences for people.
    """

    identity: Mapping[str, str]
    quotas: Mapping[QuotaKey, ResolvedQuota]
    notes: tuple[str, ...]


_BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_FRACTIONAL: Final = (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)
_CONNECTIONS: Final = (QuotaKey.CONNECTION_CREATION_RATE,)

_ODD_VALUES: Final[tuple[tuple[tuple[QuotaKey, ...], Callable[[float], bool], str], ...]] = (
    (
        _BYTE_RATES,
        lambda value: value >= TWO_TO_63,
        "2^63 bytes/s is the customary override for unlimited: it does not limit.",
    ),
    (_FRACTIONAL, lambda value: value == math.inf, "infinity does not limit."),
    (
        _CONNECTIONS,
        lambda value: value >= INT_MAX,
        "2147483647 means not limited: brokers switch the limit off for this address.",
    ),
    (
        _CONNECTIONS,
        lambda value: not value >= 1,
        "a connection rate below 1, or NaN, is taken as 0: every connection is rejected.",
    ),
    (
        (QuotaKey.PRODUCER_BYTE_RATE, *_FRACTIONAL),
        math.isnan,
        "NaN does not limit: nothing is ever throttled.",
    ),
    (
        (QuotaKey.CONSUMER_BYTE_RATE,),
        math.isnan,
        "NaN does not throttle, but each fetch returns one batch only.",
    ),
)
"""Which values of which keys do not mean what they say. Source: the brokers' quota managers."""

ORDINARY_FROM: Final = 1
ORDINARY_BELOW: Final = INT_MAX
"""Values in between mean what they say, for each key."""

HIDDEN_CLIENT_RULES: Final = (
    "The user name is empty and the default user has this key: brokers then look up no client-id "
    "rule, so nothing limits."
)


def value_notes(quota: ResolvedQuota) -> Sequence[str]:
    """Say where the value that applies does not limit, or locks out."""
    return () if quota.value is None else notes_of(quota.key, quota.value)


def notes_of(key: str, value: float) -> Sequence[str]:
    """Say where a value does not limit, or locks out; no other value has notes."""
    if ORDINARY_FROM <= value < ORDINARY_BELOW:
        return ()
    return [
        f"{key}: {sentence}"
        for keys, is_odd, sentence in _ODD_VALUES
        if key in keys and is_odd(value)
    ]


def spelling_note(address: str, names: Sequence[str]) -> str:
    """Say how an address is stored, the name that is displayed first."""
    first, *others = names
    if not others:
        return f"The address {address} is stored as {first!r}, which is not its canonical text."
    why = "the canonical text" if first == address else "none is canonical; the first by name"
    return (
        f"The address {address} is stored as {first!r} and also as {_name_some(others)}; "
        f"{first!r} is displayed ({why}). Brokers enforce whichever was applied last."
    )


def host_names_note(host_names: Collection[str]) -> str:
    """Say which stored limits could not be considered."""
    return (
        f"Limits stored under host names ({_name_some(sorted(host_names))}) are left out: each "
        "broker looked the names up for itself, and one of them may be this address."
    )


def _name_some(names: Sequence[str]) -> str:
    some = ", ".join(repr(name) for name in names[:3])
    return f"{some} and {len(names) - 3} more" if len(names) > 3 else some


_WITHOUT_USER: Final[Mapping[Slot, str]] = {
    Slot.NAMED: "An empty user name cannot be configured.",
    Slot.DEFAULT: "A rule for users never limits a caller whose user name is empty.",
}
_WITHOUT_CLIENT_ID: Final[Mapping[Slot, str]] = {
    Slot.NAMED: "An empty client-id cannot be configured.",
    Slot.DEFAULT: "Rules for the default client-id do not cover an empty client-id.",
}
"""A rule for the default client-id selects a bucket, in which brokers then look up user rules only.

Source: ``ClientQuotaManager.DefaultQuotaCallback``; KAFKA-13341, KAFKA-15314.
"""


def why_not(row: PrecedenceLevel, user: str, client_id: str) -> str | None:
    """Say why a level can never limit a caller with these names; null where it can."""
    no_user = None if user else _WITHOUT_USER.get(row.user)
    return no_user or (None if client_id else _WITHOUT_CLIENT_ID.get(row.client_id))


def applicable_levels(user: str, client_id: str) -> frozenset[int]:
    """Return the levels that can ever limit a caller with these names; either may be empty."""
    return frozenset(row.level for row in PRECEDENCE if why_not(row, user, client_id) is None)


def client_levels(
    having: Sequence[ConfiguredQuota], user: str, client_id: str, *, barred: str | None
) -> tuple[LevelTried, ...]:
    """Return the eight levels for one key.

    Args:
        having: What is stored for the key at any level.
        user: The user's name; empty for none.
        client_id: The client-id; empty for none.
        barred: Why none of them can limit this caller; null where they can.
    """
    stored = {quota.level: quota for quota in having}
    tried = []
    for row in PRECEDENCE:
        reason = why_not(row, user, client_id) or barred
        entity = _client_entity(row, user, client_id)
        tried.append(_tried(row.level, row.source, stored.get(row.level), entity, reason))
    return tuple(tried)


def source_level(
    source: ConfiguredQuota | None, levels: tuple[LevelTried, ...]
) -> tuple[LevelTried, ...]:
    """Return the levels with the quota that decides, first where the names do not lead to it."""
    if source is None or any(tried.entity == source.entity for tried in levels):
        return levels
    return (LevelTried(*source, applies=True, reason=None), *levels)


def ip_levels(having: Sequence[ConfiguredQuota], address: str) -> tuple[LevelTried, ...]:
    """Return the two levels for an address."""
    stored = {quota.level: quota for quota in having}
    return tuple(
        _tried(*row, stored.get(row[0]), ClientQuotaEntity.of({EntityType.IP: name}))
        for row, name in zip(IP_PRECEDENCE, (address, DEFAULT_NAME), strict=True)
    )


def _tried(
    level: int,
    source: QuotaSource,
    quota: ConfiguredQuota | None,
    entity: ClientQuotaEntity,
    reason: str | None = None,
) -> LevelTried:
    value = None if quota is None else quota.value
    spelled = entity if quota is None else quota.entity
    return LevelTried(spelled, level, source, value, reason is None, reason)


def _client_entity(row: PrecedenceLevel, user: str, client_id: str) -> ClientQuotaEntity:
    slots = ((EntityType.USER, row.user, user), (EntityType.CLIENT_ID, row.client_id, client_id))
    return ClientQuotaEntity.of(
        {
            kind: name if slot is Slot.NAMED else DEFAULT_NAME
            for kind, slot, name in slots
            if slot is not Slot.ABSENT
        }
    )
