"""The fake cluster and a real broker, asked the same by hand: what one answers the other does."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    Entity,
    Entry,
    RawQuotas,
    entity_of,
    printed,
    setting,
)
from tests.testkit.sizes import size

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
M, N = "controller_mutation_rate", "connection_creation_rate"


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with in_a_thread(fake_cluster) as fake:
        yield fake


class Pair(NamedTuple):
    """A fake and a real broker."""

    fake: RawQuotas
    real: RawQuotas

    def alter(self, *entries: Entry, validate_only: bool = False) -> None:
        """Alter both, which say the same; a Java map gives the verdicts in an order of its own."""
        fake, real = (set(who.alter(*entries, validate_only=validate_only)) for who in self)
        assert fake == real

    def agree(self) -> dict[object, dict[str, str]]:
        """Wait until both show the same, and return it."""
        expected = everything(self.fake)
        wait_until(lambda: everything(self.real) == expected)
        return expected


@contextmanager
def pair_with(
    world: Mapping[Entity, Mapping[str, float]], cluster: FakeCluster, broker: LocalKafka
) -> Iterator[Pair]:
    """Let both have these quotas at the beginning, and none at the end."""
    with RawQuotas(cluster.bootstrap_servers) as fake, RawQuotas(broker.bootstrap_servers) as real:
        for each in (fake, real):
            each.become(world)
        yield Pair(fake, real)
        for each in (fake, real):
            each.become({})


@pytest.fixture
def pair(cluster: FakeCluster, broker: LocalKafka) -> Iterator[Pair]:
    with pair_with({}, cluster, broker) as both:
        yield both


def everything(raw: RawQuotas) -> dict[object, dict[str, str]]:
    return {entity: printed(values) for entity, values in raw.everything().items()}


U = {"user": "u"}

ALTERATIONS: dict[str, list[Entry]] = {
    "nothing": [],
    "no keys": [setting(U, {})],
    "two keys": [setting(U, {P: 1e4, C: 2e4})],
    "a key to remove that is not there": [setting(U, {P: 1e4, R: None})],
    "nothing but what is not there": [setting(U, {R: None})],
    "the largest": [setting(U, {P: 2.0**63})],
    "half a mutation": [setting(U, {M: 0.5})],
    "the most connections": [setting({"ip": "10.0.0.1"}, {N: 2147483647.0})],
    "the text of the default": [setting({"user": "<default>"}, {P: 2e4})],
    "a long name": [setting({"user": "x" * 20000}, {P: 2e4})],
    "several entities": [
        setting({"user": "a"}, {P: 1.0}),
        setting({"user": None, "client-id": None}, {P: 8.0}),
        setting({"user": None}, {P: 6.0}),
        setting({"client-id": None}, {P: 4.0}),
        setting({"ip": None}, {N: 2.0}),
    ],
}


@pytest.mark.parametrize("case", ALTERATIONS)
def test_an_alteration_is_answered_and_applied_alike(pair: Pair, case: str):
    entries = ALTERATIONS[case]
    pair.alter(*entries, validate_only=True)
    assert pair.agree() == {}
    pair.alter(*entries)
    once = pair.agree()
    pair.alter(*entries)
    assert pair.agree() == once
    pair.alter(*(Entry(each.entity, [(key, None) for key, _ in each.ops]) for each in entries))
    assert pair.agree() == {}


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

FILTERS: dict[str, list[Component]] = {
    "all": [],
    "a user": [("user", EXACT, "user-1")],
    "the default user": [("user", DEFAULT, None)],
    "any user": [("user", ANY, None)],
    "any client": [("client-id", ANY, None)],
    "any pair": [("user", ANY, None), ("client-id", ANY, None)],
    "a pair with the default": [("user", ANY, None), ("client-id", DEFAULT, None)],
    "any address": [("ip", ANY, None)],
    "the default address": [("ip", DEFAULT, None)],
    "an empty name": [("user", EXACT, "")],
}


@pytest.fixture(scope="module")
def filled(cluster: FakeCluster, broker: LocalKafka) -> Iterator[Pair]:
    with pair_with(FIXTURE, cluster, broker) as both:
        yield both


@pytest.mark.parametrize("strict", [False, True])
def test_a_filter_is_answered_alike(filled: Pair, strict: bool, subtests: pytest.Subtests):
    for case, components in FILTERS.items():
        with subtests.test(case):
            fake, real = (each.describe(*components, strict=strict) for each in filled)
            assert fake == real


NAMES = ("a", "b", None, "<default>")
SHAPES = (("user",), ("client-id",), ("user", "client-id"), ("ip",))
KEYS = (P, C, M)
"""Not ``request_percentage``: on a default entity it would throttle this very test."""
VALUES = (None, 1.0, 2.0, 1024.0, 2.0**63)


def any_entry(chance: random.Random) -> Entry:
    shape = chance.choice(SHAPES)
    if shape == ("ip",):
        return Entry([("ip", "10.0.0.1")], [(N, chance.choice((None, 1.0, 2.0)))])
    keys = chance.sample(KEYS, chance.randrange(len(KEYS) + 1))
    names = [(kind, chance.choice(NAMES)) for kind in shape]
    return Entry(names, [(key, chance.choice(VALUES)) for key in keys])


@pytest.mark.parametrize("seed", range(size(2, 4)))
def test_whatever_is_asked_is_answered_alike(pair: Pair, seed: int):
    chance = random.Random(seed)
    for _ in range(50):
        entries = [any_entry(chance) for _ in range(chance.randrange(1, 5))]
        once = {frozenset(entry.entity): entry for entry in entries}.values()
        pair.alter(*once, validate_only=chance.random() < 0.2)
        pair.agree()
