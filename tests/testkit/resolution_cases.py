"""Resolve's numbered cases and rule sets, and a port of the broker's own lookup to judge by.

The port finds a limit in the broker's two steps: first the bucket's tags are chosen from which
rules exist, then the limit is looked up from the tags alone. It is ported line for line and without
any of the service's own tables.

Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1. The user tag is left unencoded.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from app.domain.entities import ClientQuotaEntity

_F1 = {
    ("user-1", "client-id-1"): 50.50,
    ("user-2", "client-id-1"): 51.51,
    ("user-3", "client-id-2"): 52.52,
    (None, "client-id-1"): 53.53,
    ("user-1", None): 54.54,
    ("user-3", None): 55.55,
}
_F1_USERS = {"user-1": 56.56, "user-2": 57.57, "user-3": 58.58, None: 59.59}


def describe_fixture() -> dict[ClientQuotaEntity, dict[str, float]]:
    """Return fixture F1: eleven user and client-id entities and two addresses."""
    quotas = {
        ClientQuotaEntity.of({"user": user, "client-id": client}): {"request_percentage": value}
        for (user, client), value in _F1.items()
    }
    for user, value in _F1_USERS.items():
        quotas[ClientQuotaEntity.of({"user": user})] = {"request_percentage": value}
    quotas[ClientQuotaEntity.of({"client-id": "client-id-2"})] = {"request_percentage": 60.60}
    for address, rate in {"1.2.3.4": 10.0, "2.3.4.5": 20.0}.items():
        quotas[ClientQuotaEntity.of({"ip": address})] = {"connection_creation_rate": rate}
    return quotas


class Entity(Enum):
    """What stands for a name in a rule."""

    DEFAULT = "default"
    ABSENT = "absent"


DEFAULT: Final = Entity.DEFAULT
ABSENT: Final = Entity.ABSENT

Name = str | Entity
Slots = tuple[Name, Name]
Rules = Mapping[Slots, float]
Tags = tuple[str, str]

CLIENT_ID_QUOTA_ENABLED: Final = 1
USER_QUOTA_ENABLED: Final = 2
USER_CLIENT_ID_QUOTA_ENABLED: Final = 4


def entity_of(slots: Slots) -> ClientQuotaEntity:
    names = dict(zip(("user", "client-id"), slots, strict=True))
    return ClientQuotaEntity.of(
        {
            kind: None if name is DEFAULT else str(name)
            for kind, name in names.items()
            if name is not ABSENT
        }
    )


class DefaultQuotaCallback:
    """The rules of one quota type, keyed by (user, client-id)."""

    def __init__(self, rules: Rules) -> None:
        self.overridden_quotas = dict(rules)
        self.quota_types_enabled = 0
        for user, client_id in rules:
            if user is not ABSENT and client_id is not ABSENT:
                self.quota_types_enabled |= USER_CLIENT_ID_QUOTA_ENABLED
            elif user is not ABSENT:
                self.quota_types_enabled |= USER_QUOTA_ENABLED
            else:
                self.quota_types_enabled |= CLIENT_ID_QUOTA_ENABLED

    def quota_metric_tags(self, user: str, client_id: str) -> Tags:
        enabled = self.quota_types_enabled
        if enabled in (0, CLIENT_ID_QUOTA_ENABLED):
            return "", client_id
        if enabled == USER_QUOTA_ENABLED:
            return user, ""
        if enabled == USER_CLIENT_ID_QUOTA_ENABLED:
            return user, client_id
        return self._tags_among_several_kinds(user, client_id)

    def _tags_among_several_kinds(self, user: str, client_id: str) -> Tags:
        quotas = self.overridden_quotas
        if (user, client_id) in quotas or (user, DEFAULT) in quotas:
            return user, client_id
        if (user, ABSENT) in quotas:
            return user, ""
        if (DEFAULT, client_id) in quotas or (DEFAULT, DEFAULT) in quotas:
            return user, client_id
        if (DEFAULT, ABSENT) in quotas:
            return user, ""
        return "", client_id

    def quota_limit(self, tags: Tags) -> float | None:
        """Return the limit of a bucket; null is unlimited."""
        user, client_id = tags
        if user and client_id:
            return self._first(
                (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
            )
        if user:
            return self._first((user, ABSENT), (DEFAULT, ABSENT))
        if client_id:
            return self._first((ABSENT, client_id), (ABSENT, DEFAULT))
        return None

    def _first(self, *entities: Slots) -> float | None:
        found = (
            self.overridden_quotas[entity]
            for entity in entities
            if entity in self.overridden_quotas
        )
        return next(found, None)


P, C = "producer_byte_rate", "consumer_byte_rate"
R, M, I = "request_percentage", "controller_mutation_rate", "connection_creation_rate"  # noqa: E741

Store = Mapping[Slots, Mapping[str, float]]


def at(key: str, values: Mapping[Slots, float]) -> dict[Slots, dict[str, float]]:
    return {slots: {key: value} for slots, value in values.items()}


def without(store: Store, *gone: Slots) -> Store:
    return {slots: values for slots, values in store.items() if slots not in gone}


BOTH_DEFAULT, DEFAULT_USER, DEFAULT_CLIENT = (
    (DEFAULT, DEFAULT),
    (DEFAULT, ABSENT),
    (ABSENT, DEFAULT),
)

F2: Store = at(
    P,
    {
        DEFAULT_USER: 1000,
        DEFAULT_CLIENT: 2000,
        BOTH_DEFAULT: 3000,
        ("userA", ABSENT): 4000,
        ("userA", "client1"): 5000,
        ("userB", ABSENT): 6000,
        ("userB", "client1"): 7000,
        ("userB", DEFAULT): 8000,
        ("userC", ABSENT): 10000,
        (ABSENT, "client1"): 9000,
    },
)
F3: Store = at(
    P, {(DEFAULT, "c1"): 100, DEFAULT_USER: 200, (ABSENT, "c1"): 300, ("alice", ABSENT): 50}
)
F4: Store = {("alice", ABSENT): {P: 10}, (ABSENT, "c1"): {C: 20}, DEFAULT_USER: {R: 5}}
F2_NO_PAIR = without(F2, BOTH_DEFAULT)
F2_NO_USER = without(F2_NO_PAIR, DEFAULT_USER)
F3_NO_USER = without(F3, DEFAULT_USER)
TWO_TO_63 = 9223372036854775807.0


class Case(NamedTuple):
    """Stored values, a caller, and what applies: value, level, bucket; null = not stated."""

    store: Store
    caller: tuple[str, str]
    value: float | None
    level: int | None
    bucket: tuple[str, str] | None = None
    key: str = P


CASES = {
    "C109": Case(F2, ("userA", "client1"), 5000, 1, ("userA", "client1")),
    "C110": Case(F2, ("userA", "client2"), 4000, 3, ("userA", "")),
    "C112": Case(F2, ("userB", "client1"), 7000, 1),
    "C113": Case(F2, ("userB", "client2"), 8000, 2, ("userB", "client2")),
    "C115": Case(F2, ("userC", "client1"), 10000, 3),
    "C116": Case(F2, ("userD", "client1"), 3000, 5, ("userD", "client1")),
    "C118": Case(F2_NO_PAIR, ("userD", "client1"), 1000, 6, ("userD", "")),
    "C119 client4": Case(F2_NO_PAIR, ("userF", "client4"), 1000, 6, ("userF", "")),
    "C119 client5": Case(F2_NO_PAIR, ("userF", "client5"), 1000, 6, ("userF", "")),
    "C121": Case(F2_NO_USER, ("userF", "client1"), 9000, 7),
    "C122 userF": Case(F2_NO_USER, ("userF", "client5"), 2000, 8, ("", "client5")),
    "C122 userG": Case(F2_NO_USER, ("userG", "client5"), 2000, 8, ("", "client5")),
    "C124": Case(without(F2, ("userA", "client1")), ("userA", "client1"), 4000, 3),
    "C125": Case({**F2, ("userA", DEFAULT): {P: 12000}}, ("userA", "client6"), 12000, 2),
    "C127": Case(F2, ("userD", ""), 1000, 6, ("userD", "")),
    "C128": Case(at(P, {DEFAULT_CLIENT: 500}), ("alice", ""), None, None),
    "C130": Case(F3, ("bob", "c1"), 100, 4),
    "C131": Case(F3, ("alice", "c1"), 50, 3),
    "C133 c1": Case(F3_NO_USER, ("bob", "c1"), 100, 4),
    "C133 c2": Case(F3_NO_USER, ("bob", "c2"), None, None),
    "C134": Case(without(F3_NO_USER, (DEFAULT, "c1")), ("bob", "c1"), 300, 7),
    "C136 P": Case(F4, ("bob", "c1"), None, None),
    "C136 C": Case(F4, ("bob", "c1"), 20, 7, key=C),
    "C136 R": Case(F4, ("bob", "c1"), 5, 6, key=R),
    "C137": Case(
        at(P, {DEFAULT_USER: 1000, ("alice", ABSENT): TWO_TO_63}), ("alice", "x"), TWO_TO_63, 3
    ),
    "C139 set": Case(at(P, {("userA", "client1"): 10}), ("userA", "client1"), 10, 1),
    "C139 removed": Case({}, ("userA", "client1"), None, None),
    "C140": Case(at(P, {("<default>", ABSENT): 5}), ("alice", "x"), None, None),
    "C142": Case(at(P, {("x", ABSENT): 7}), ("x", ""), 7, 3),
    "C143": Case(at(M, {DEFAULT_USER: 2}), ("U", "x"), 2, 6, key=M),
    "no user, a rule for the default user": Case(
        at(P, {DEFAULT_USER: 1, (ABSENT, "c"): 2}), ("", "c"), None, None, ("", "")
    ),
    "no user, a rule for pairs too": Case(
        at(P, {DEFAULT_USER: 1, (ABSENT, "c"): 2, BOTH_DEFAULT: 3}), ("", "c"), 2, 7
    ),
    "no user and no client-id": Case(F2, ("", ""), None, None, ("", "")),
    "the name that callers without authentication have": Case(
        at(P, {("ANONYMOUS", ABSENT): 3}), ("ANONYMOUS", "x"), 3, 3
    ),
}
"""By the number in the list of Kafka's own behaviour, or by what is odd."""
