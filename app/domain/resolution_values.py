"""The answer to "what applies, and why"."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey, Scope


class ConfiguredQuota(NamedTuple):
    """A stored value of one key and its place; ``name`` is the level's name."""

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
