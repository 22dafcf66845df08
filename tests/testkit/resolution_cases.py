"""The numbered resolve cases: stored values, a caller, and what applies on a broker."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.testkit.broker_two_step import ABSENT, DEFAULT, Slots

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
    """Stored values, a caller, and what applies: value, level, bucket; null = not said."""

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
        at(P, {DEFAULT_USER: 1, (ABSENT, "c"): 2}), ("", "c"), None, None
    ),
    "no user, a rule for pairs too": Case(
        at(P, {DEFAULT_USER: 1, (ABSENT, "c"): 2, BOTH_DEFAULT: 3}), ("", "c"), 2, 7
    ),
    "no user and no client-id": Case(F2, ("", ""), None, None),
    "the name that callers without authentication have": Case(
        at(P, {("ANONYMOUS", ABSENT): 3}), ("ANONYMOUS", "x"), 3, 3
    ),
}
"""By the number in the list of Kafka's own behaviour, or by what is odd."""
