"""The fake cluster and a real broker, asked the same by hand: what one answers the other does."""

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.event_loops import in_a_thread
from tests.testkit.fake_kafka.cluster import FakeCluster, fake_cluster
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import (
    ANY,
    DEFAULT,
    EXACT,
    Component,
    Entry,
    RawQuotas,
    Verdict,
    entity_of,
    printed,
)
from tests.testkit.sizes import size

NAN, INFINITY = float("nan"), float("inf")
P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
M, N = "controller_mutation_rate", "connection_creation_rate"


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with in_a_thread(fake_cluster) as fake:
        yield fake


class Pair(NamedTuple):
    """A fake and a real broker, both without any quota."""

    fake: RawQuotas
    real: RawQuotas

    def alter(self, *entries: Entry, validate_only: bool = False) -> list[Verdict]:
        """Alter both, and return what both say."""
        verdicts = {who: who.alter(*entries, validate_only=validate_only) for who in self}
        fake, real = (comparable(verdicts[who], entries) for who in self)
        assert fake == real
        return verdicts[self.real]

    def agree(self) -> dict[object, dict[str, str]]:
        """Wait until both show the same, and return it."""
        expected = everything(self.fake)
        wait_until(lambda: everything(self.real) == expected)
        return expected


@pytest.fixture
def pair(cluster: FakeCluster, broker: LocalKafka) -> Iterator[Pair]:
    with RawQuotas(cluster.bootstrap_servers) as fake, RawQuotas(broker.bootstrap_servers) as real:
        for each in (fake, real):
            each.become({})
        yield Pair(fake, real)
        for each in (fake, real):
            each.become({})


def comparable(verdicts: list[Verdict], entries: tuple[Entry, ...]) -> list[object]:
    """Return verdicts without what differs from call to call: their order, that of a Java map.

    Which of several bad keys is named first depends on that, too.
    """
    several = any(len(entry.ops) > 1 for entry in entries)
    return sorted(
        repr(
            (
                sorted(verdict.entity, key=repr),
                verdict.code,
                None if several else named(verdict.message),
            )
        )
        for verdict in verdicts
    )


def named(message: str | None) -> str | None:
    """Cut off the entity that a message prints."""
    return message and message.partition("(entries=")[0]


def everything(raw: RawQuotas) -> dict[object, dict[str, str]]:
    return {entity: printed(values) for entity, values in raw.everything().items()}


def entry(names: dict[str, str | None], *ops: tuple[str, float | None]) -> Entry:
    return Entry(list(names.items()), ops)


U = {"user": "u"}

ALTERATIONS: dict[str, tuple[int, list[Entry]]] = {
    "two keys": (0, [entry(U, (P, 1e4), (C, 2e4))]),
    "nothing to remove": (0, [entry(U, (R, None))]),
    "an unknown key to remove": (0, [entry(U, ("bad", None))]),
    "a key of another shape to remove": (0, [entry(U, (N, None))]),
    "zero": (42, [entry(U, (P, 0.0))]),
    "minus zero": (42, [entry(U, (R, -0.0))]),
    "negative": (42, [entry(U, (M, -1.0))]),
    "minus infinity": (42, [entry(U, (R, -INFINITY))]),
    "zero connections": (42, [entry({"ip": "10.0.0.1"}, (N, 0.0))]),
    "a fraction": (42, [entry(U, (C, 2.245))]),
    "nearly a whole number above": (0, [entry(U, (C, 1235.0000001))]),
    "nearly a whole number below": (42, [entry(U, (C, 1.9999999))]),
    "a half": (42, [entry(U, (P, 0.5))]),
    "next to nothing": (0, [entry(U, (P, 1e-9))]),
    "the least there is": (0, [entry(U, (R, 5e-324))]),
    "half a mutation": (0, [entry(U, (M, 0.5))]),
    "too large for a long": (42, [entry(U, (C, 36893488147419103232.4))]),
    "the next above 2^63": (42, [entry(U, (P, 9223372036854777856.0))]),
    "2^63": (0, [entry(U, (P, 2.0**63))]),
    "infinite bytes": (42, [entry(U, (P, INFINITY))]),
    "infinite percents": (0, [entry(U, (R, INFINITY))]),
    "infinite connections": (42, [entry({"ip": None}, (N, INFINITY))]),
    "not a number of bytes": (0, [entry(U, (P, NAN))]),
    "not a number of percents": (0, [entry(U, (R, NAN))]),
    "not a number of connections": (0, [entry({"ip": "10.0.0.9"}, (N, NAN))]),
    "the most connections": (0, [entry({"ip": "10.0.0.1"}, (N, 2147483647.0))]),
    "too many connections": (42, [entry({"ip": "10.0.0.1"}, (N, 2147483648.0))]),
    "half a connection too many": (42, [entry({"ip": "10.0.0.1"}, (N, 2147483647.5))]),
    "a key that nobody knows": (42, [entry(U, ("bad", 1.0))]),
    "one bad key of two": (42, [entry(U, (R, 99.9), ("not.a.quota.key", 0.0))]),
    "a mechanism": (42, [entry(U, ("SCRAM-SHA-256", 5.0))]),
    "connections of a user": (42, [entry(U, (N, 5.0))]),
    "bytes of an address": (42, [entry({"ip": "1.2.3.4"}, (P, 5.0))]),
    "an empty user": (42, [entry({"user": ""}, (R, 12.34))]),
    "an empty client": (42, [entry({"client-id": ""}, (R, 12.34))]),
    "an empty address": (42, [entry({"ip": ""}, (N, 5.0))]),
    "nobody": (42, [entry({}, (P, 10000.5))]),
    "an unknown type without keys": (42, [entry({"foo": "bar"})]),
    "an empty type": (42, [entry({"": "bar"}, (P, 5.0))]),
    "a type in capitals": (42, [entry({"USER": "u"}, (P, 5.0))]),
    "a user with an address": (42, [entry({"user": "u", "ip": "1.2.3.4"}, (R, 12.34))]),
    "a client with every address": (42, [entry({"client-id": "c", "ip": None}, (N, 5.0))]),
    "an address range": (42, [entry({"ip": "10.0.0.0/8"}, (N, 5.0))]),
    "a short address": (0, [entry({"ip": "16909060"}, (N, 5.0))]),
    "an address in brackets": (0, [entry({"ip": "[::1]"}, (N, 5.0))]),
    "localhost": (0, [entry({"ip": "localhost"}, (N, 5.0))]),
    "a key twice": (42, [entry(U, (P, 1000.0), (P, 2000.0))]),
    "a key to set and remove": (42, [entry(U, (P, 1000.0), (P, None))]),
    "an entity twice": (42, [entry(U, (P, 1000.0)), entry(U, (C, 2000.0))]),
    "an entity twice, bad first": (42, [entry(U, (P, -1.0)), entry(U, (C, 2000.0))]),
    "an entity thrice": (42, [entry(U, (P, 1.0)), entry(U, (C, 2.0)), entry(U, (R, 3.0))]),
    "no keys": (0, [entry(U)]),
    "the text of the default": (0, [entry({"user": "<default>"}, (P, 2e4))]),
    "a blank": (0, [entry({"user": " "}, (P, 2e4))]),
    "a long name": (0, [entry({"user": "x" * 20000}, (P, 2e4))]),
    "a type twice": (0, [Entry([("user", "a"), ("user", "b")], [(P, 5.0)])]),
}


@pytest.mark.parametrize("case", ALTERATIONS)
def test_an_alteration_is_judged_and_applied_alike(pair: Pair, case: str):
    code, entries = ALTERATIONS[case]
    validated = pair.alter(*entries, validate_only=True)
    assert [verdict.code for verdict in validated] == [code]
    assert pair.agree() == {}
    assert [verdict.code for verdict in pair.alter(*entries)] == [code]
    once = pair.agree()
    pair.alter(*entries)
    assert pair.agree() == once


def test_what_is_good_is_applied_beside_what_is_refused(pair: Pair):
    verdicts = pair.alter(
        entry({"user": "a"}, (P, 1.0)),
        entry({"user": "b"}, (P, 0.0)),
        entry({"user": None, "client-id": None}, (P, 8.0)),
        entry({"user": None}, (P, 6.0)),
        entry({"client-id": None}, (P, 4.0)),
    )
    assert sorted(verdict.code for verdict in verdicts) == [0, 0, 0, 0, 42]
    assert len(pair.agree()) == 4


def test_of_a_duplicate_entity_the_first_copy_is_applied_although_it_is_refused(pair: Pair):
    verdicts = pair.alter(entry(U, (P, 1000.0)), entry(U, (C, 2000.0)))
    assert [verdict.code for verdict in verdicts] == [42]
    assert pair.agree() == {entity_of(U): printed({P: 1000.0})}


def test_a_request_without_entries_succeeds(pair: Pair):
    assert pair.alter() == []


@pytest.mark.long
def test_ten_thousand_keys_are_the_most(pair: Pair):
    users = [entry({"user": f"user-{number}"}, (P, 1.0)) for number in range(10_001)]
    for validate_only in (True, False):
        verdicts = pair.alter(*users, validate_only=validate_only)
        assert {verdict.code for verdict in verdicts} == {44}
        assert len(verdicts) == 10_001
    assert pair.agree() == {}
    assert {verdict.code for verdict in pair.alter(*users[:10_000])} == {0}
    assert len(pair.agree()) == 10_000
    # Only what changes something counts.
    removal = entry({"user": "user-9999"}, (P, None), (C, None))
    assert {verdict.code for verdict in pair.alter(*users[:9_999], removal)} == {0}
    assert len(pair.agree()) == 9_999


FIXTURE = {
    **{
        entity_of({"user": user, "client-id": client}): {R: value}
        for user, client, value in [
            ("user-1", "client-id-1", 50.5),
            ("user-3", "client-id-2", 52.52),
            (None, "client-id-1", 53.53),
            ("user-1", None, 54.54),
        ]
    },
    entity_of({"user": "user-1"}): {R: 56.56, P: 1.0},
    entity_of({"user": None}): {R: 59.59},
    entity_of({"client-id": "client-id-2"}): {R: 60.6},
    entity_of({"ip": "1.2.3.4"}): {N: 10.0},
}

FILTERS: dict[str, tuple[int, list[Component]]] = {
    "all": (0, []),
    "a user": (0, [("user", EXACT, "user-1")]),
    "the default user": (0, [("user", DEFAULT, None)]),
    "any user": (0, [("user", ANY, None)]),
    "any client": (0, [("client-id", ANY, None)]),
    "any pair": (0, [("user", ANY, None), ("client-id", ANY, None)]),
    "a pair with the default": (0, [("user", ANY, None), ("client-id", DEFAULT, None)]),
    "any address": (0, [("ip", ANY, None)]),
    "the default address": (0, [("ip", DEFAULT, None)]),
    "an empty name": (0, [("user", EXACT, "")]),
    "an empty type": (42, [("", EXACT, "x")]),
    "an address and a user": (42, [("ip", ANY, None), ("user", ANY, None)]),
    "a type in capitals": (35, [("User", EXACT, "user-1")]),
    "a type twice": (42, [("user", EXACT, "a"), ("user", DEFAULT, None)]),
    "an unknown type twice": (35, [("other", EXACT, "a"), ("other", EXACT, "a")]),
    "exactly nobody": (42, [("user", EXACT, None)]),
    "a default with a name": (42, [("user", DEFAULT, "x")]),
    "any with a name": (42, [("user", ANY, "x")]),
    "another match": (42, [("user", 3, None)]),
    "another match with a name": (42, [("user", 3, "x")]),
}


@pytest.fixture(scope="module")
def filled(cluster: FakeCluster, broker: LocalKafka) -> Iterator[Pair]:
    with RawQuotas(cluster.bootstrap_servers) as fake, RawQuotas(broker.bootstrap_servers) as real:
        for each in (fake, real):
            each.become(FIXTURE)
        yield Pair(fake, real)
        for each in (fake, real):
            each.become({})


@pytest.mark.parametrize("strict", [False, True])
def test_a_filter_is_answered_alike(filled: Pair, strict: bool, subtests: pytest.Subtests):
    for case, (code, components) in FILTERS.items():
        with subtests.test(case):
            fake, real = (each.describe(*components, strict=strict) for each in filled)
            assert fake == real
            assert real.code == code


NAMES = ("a", "b", None, "", "<default>")
SHAPES = (("user",), ("client-id",), ("user", "client-id"), ("ip",), ("user", "ip"), ("other",))
KEYS = (P, C, M, N, "bad")
"""Not ``request_percentage``: on a default entity it would throttle this very test."""
VALUES = (None, 1.0, 2.0, 1024.0, 0.5, 0.0, -1.0, NAN, INFINITY, 1e-9, 2.0**63, 2.0**64, 1.0000001)


def any_entry(chance: random.Random) -> Entry:
    shape = chance.choice(SHAPES)
    names = [(kind, "10.0.0.1" if kind == "ip" else chance.choice(NAMES)) for kind in shape]
    keys = [N] * 3 if shape == ("ip",) else KEYS
    ops = [(chance.choice(keys), chance.choice(VALUES)) for _ in range(chance.randrange(4))]
    return Entry(names, ops)


@pytest.mark.parametrize("seed", range(size(2, 4)))
def test_whatever_is_asked_is_answered_alike(pair: Pair, seed: int):
    chance = random.Random(seed)
    for _ in range(50):
        entries = [any_entry(chance) for _ in range(chance.randrange(1, 5))]
        pair.alter(*entries, validate_only=chance.random() < 0.2)
        pair.agree()
