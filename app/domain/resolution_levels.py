"""The levels that a quota can come from, most specific first, and the result of a resolution."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey, Scope


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
        level: 1 to 8.
        source: Its name.
        user: How the rule's entity names the user.
        client_id: How it names the client-id.
        bucket: Who shares the limit that comes from here.
    """

    level: int
    source: QuotaSource
    user: Slot
    client_id: Slot
    bucket: Bucket


@dataclass(frozen=True, slots=True)
class IpPrecedenceLevel:
    """One of the two levels for an address."""

    level: int
    source: QuotaSource
    ip: Slot


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

IP_PRECEDENCE: Final = (
    IpPrecedenceLevel(1, QuotaSource.IP, Slot.NAMED),
    IpPrecedenceLevel(2, QuotaSource.DEFAULT_IP, Slot.DEFAULT),
)
"""The two levels for an address. Source: ``SocketServer.ConnectionQuotas``."""

ALL_LEVELS: Final = frozenset(row.level for row in PRECEDENCE)

LEVELS_WITHOUT_CLIENT_ID: Final = frozenset({3, 6})
"""The levels that can limit a caller whose client-id is empty.

A rule for the default client-id selects a bucket, in which brokers then look up user rules only.

Source: ``ClientQuotaManager.DefaultQuotaCallback``; KAFKA-13341, KAFKA-15314.
"""

LEVELS_WITHOUT_USER: Final = frozenset({7, 8})
"""The levels that can limit a caller whose user name is empty, unless level 6 hides them."""


def applicable_levels(user: str, client_id: str) -> frozenset[int]:
    """Return the levels that can ever limit a caller with these names; either may be empty."""
    levels = ALL_LEVELS if user else LEVELS_WITHOUT_USER
    return levels if client_id else levels & LEVELS_WITHOUT_CLIENT_ID


class ConfiguredQuota(NamedTuple):
    """A stored value of one key and its level; ``name`` is the level's name."""

    entity: ClientQuotaEntity
    level: int
    name: str
    value: float


class LevelTried(NamedTuple):
    """One level as it was tried.

    Attributes:
        entity: The entity that was looked up there.
        level: Its number.
        name: Its name.
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
        key: What is limited.
        value: As stored, in the key's unit; null = unlimited.
        source: Where the value comes from; null where nothing applies.
        shared_by: The metric tags of the bucket, not encoded: user and client-id, or ip.
        overridden: The less specific entities that would apply, in turn, without the source.
        levels: Every level tried, most specific first; empty unless asked for.
    """

    key: QuotaKey
    value: float | None
    source: ConfiguredQuota | None
    shared_by: Mapping[str, str]
    overridden: tuple[ConfiguredQuota, ...]
    levels: tuple[LevelTried, ...] = ()

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
