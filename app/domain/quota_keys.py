"""The quota keys: what can be limited, in which unit, for which entities, within which bounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from app.domain.entities import EntityType


class QuotaKey(StrEnum):
    """The keys that a broker enforces, in Kafka's spelling. Source: ``QuotaConfig``."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


class Scope(StrEnum):
    """Where a limit is enforced."""

    PER_BROKER = "per_broker"
    CLUSTER = "cluster"


TWO_TO_63: Final = 2**63
"""2^63, the customary "unlimited" override; as JSON it is 9223372036854775807."""

LONG_MAX: Final = TWO_TO_63 - 1
JAVASCRIPT_TWO_TO_63: Final = 9223372036854776000
"""What JavaScript writes for 2^63, however it was read."""
INT_MAX: Final = 2**31 - 1
SMALLEST_FRACTION: Final = 0.01
LARGEST_FRACTIONAL: Final = 1e9


USER_CLIENT_TYPES: Final = frozenset({EntityType.USER, EntityType.CLIENT_ID})
IP_TYPES: Final = frozenset({EntityType.IP})


@dataclass(frozen=True, slots=True)
class QuotaKeyRule:
    """What this service accepts for one key; stricter than the broker where that hurts nobody.

    Attributes:
        scope: Who counts: each broker on its own, or the active controller for the cluster.
        entity_types: The types of which entities that carry the key are made.
    """

    unit: str
    scope: Scope
    entity_types: frozenset[EntityType]
    integral: bool
    minimum: float
    maximum: float

    def allows(self, number: float) -> bool:
        """Tell whether a number is within the bounds, and whole where it must be."""
        return self.minimum <= number <= self.maximum and not (
            self.integral and not number.is_integer()
        )


_BYTES: Final = QuotaKeyRule("bytes/s", Scope.PER_BROKER, USER_CLIENT_TYPES, True, 1, TWO_TO_63)

QUOTA_KEY_RULES: Final[Mapping[str, QuotaKeyRule]] = {
    QuotaKey.PRODUCER_BYTE_RATE: _BYTES,
    QuotaKey.CONSUMER_BYTE_RATE: _BYTES,
    QuotaKey.REQUEST_PERCENTAGE: QuotaKeyRule(
        "percent", Scope.PER_BROKER, USER_CLIENT_TYPES, False, SMALLEST_FRACTION, LARGEST_FRACTIONAL
    ),
    QuotaKey.CONTROLLER_MUTATION_RATE: QuotaKeyRule(
        "partitions/s",
        Scope.CLUSTER,
        USER_CLIENT_TYPES,
        False,
        SMALLEST_FRACTION,
        LARGEST_FRACTIONAL,
    ),
    QuotaKey.CONNECTION_CREATION_RATE: QuotaKeyRule(
        "connections/s", Scope.PER_BROKER, IP_TYPES, True, 1, INT_MAX
    ),
}
"""One row for each key. Source: ``QuotaConfig`` for unit and type, ``api.md`` for the bounds."""


def keys_for(types: frozenset[str]) -> tuple[QuotaKey, ...]:
    """Return the keys that an entity made of these types may carry."""
    return tuple([key for key, kinds in _CARRIERS if types and types <= kinds])


_CARRIERS: Final = tuple((key, QUOTA_KEY_RULES[key].entity_types) for key in QuotaKey)


def key_text(key: str) -> str:
    """Return a key for a sentence: what follows a ``=`` in it may be a password, as of SCRAM."""
    return key.partition("=")[0]


def unknown_key(key: str) -> str:
    """Return the sentence about a key that no rule has, with the one that was meant perhaps."""
    near = get_close_matches(key, QUOTA_KEY_RULES, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    keys = ", ".join(QUOTA_KEY_RULES)
    return f"Unknown quota key {key_text(key)!r}; a broker knows {keys}.{hint}"
