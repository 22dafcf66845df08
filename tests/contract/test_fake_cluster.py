"""The fake cluster and a real broker, asked the same by hand: what one answers the other does.

Then what the fake does on request, and no real broker does whenever a test wants it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import pytest

from app.domain.alterations import Outcome
from app.kafka.cluster_client import Brokers
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.localdev.kafka import LocalKafka
from app.service.ports.brokers import Handover
from tests.testkit import kafka
from tests.testkit.event_loops import in_a_thread, until
from tests.testkit.fake_kafka.cluster import (
    DROP_AFTER_APPLYING,
    DROP_BEFORE_APPLYING,
    HELD,
    FakeCluster,
    Fault,
    apply_late,
    fake_cluster,
    time_out_and_apply_late,
)
from tests.testkit.kafka import DEADLINE_S, brokers_of
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


class Caller:
    """Alters users of a fake cluster, through one broker at a time and without waiting."""

    def __init__(self, cluster: FakeCluster, brokers: Brokers) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.admin = KafkaClientQuotaAdmin(brokers)

    async def send(self, user: str, value: int, through: int = 1) -> "asyncio.Task[Handover]":
        """Send, and return when the request waits at the broker or has been answered."""
        number = len(self.cluster.alterations) + 1
        options = {"value": value, "timeout_s": DEADLINE_S, "broker_id": through}
        task = asyncio.create_task(kafka.alter(self.admin, kafka.entity(user=user), **options))
        await until(lambda: len(self.cluster.alterations) == number)
        return task

    def log(self) -> list[tuple[str | None, float | None]]:
        return [
            (dict(each.write.entity.entries)["user"], each.write.value)
            for each in self.cluster.apply_log
        ]


@asynccontextmanager
async def calling(brokers: int = 2, **patience: float) -> AsyncIterator[Caller]:
    async with (
        fake_cluster(brokers, **patience) as cluster,
        brokers_of(cluster.bootstrap_servers) as connections,
    ):
        caller = Caller(cluster, connections)
        yield caller
        await asyncio.wait_for(caller.admin.close(), DEADLINE_S)


async def answers(*tasks: "asyncio.Task[Handover]") -> list[tuple[Outcome, str | None]]:
    done = await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE_S)
    verdicts = [verdict for each in done for verdict in each.verdicts.values()]
    return [(each.outcome, each.error and each.error.kafka_error) for each in verdicts]


APPLIED, LOST = (Outcome.APPLIED, None), (Outcome.UNKNOWN, None)
TIMED_OUT = (Outcome.UNKNOWN, "REQUEST_TIMED_OUT")


@pytest.mark.parametrize(
    ("fault", "answer", "applied", "applied_later"),
    [
        (DROP_BEFORE_APPLYING, LOST, False, False),
        (DROP_AFTER_APPLYING, LOST, True, False),
        (Fault(error_code=-1), (Outcome.UNKNOWN, "UNKNOWN_SERVER_ERROR"), True, False),
        (Fault(refused=89), (Outcome.REFUSED, "THROTTLING_QUOTA_EXCEEDED"), False, False),
        (apply_late(HELD), LOST, False, True),
        (time_out_and_apply_late(HELD), TIMED_OUT, False, True),
    ],
)
async def test_a_fault_happens_once(
    fault: Fault, answer: tuple[Outcome, str | None], *, applied: bool, applied_later: bool
):
    async with calling(1) as caller:
        caller.cluster.fail_next(fault)
        assert await answers(await caller.send("a", 1)) == [answer]
        assert caller.log() == [("a", 1)] * applied
        caller.cluster.apply_held()
        assert caller.log() == [("a", 1)] * (applied or applied_later)
        assert await answers(await caller.send("a", 2)) == [APPLIED]


@pytest.mark.parametrize("lost", ["", "cut", "out of patience"])
async def test_requests_are_forwarded_in_turn_and_in_reverse_once_the_connection_is_lost(lost: str):
    async with calling(socket_patience_s=1.0 if lost == "out of patience" else 30.0) as caller:
        caller.cluster.hold_requests(1)
        sent = [await caller.send(user, 1) for user in "abc"]
        assert await answers(await caller.send("a", 2, through=2)) == [APPLIED]
        if lost == "cut":
            caller.cluster.cut(1)
        await until(lambda: caller.cluster.losses(1) >= bool(lost))
        caller.cluster.let_go(1)
        assert await answers(*sent) == [APPLIED] * 3
        assert caller.log() == [("a", 2), *((user, 1) for user in ("cba" if lost else "abc"))]


async def test_an_answer_that_is_lost_lets_the_broker_undo_a_later_change():
    async with calling() as caller:
        caller.cluster.hold_answers(1)
        old = await caller.send("a", 1)
        await until(lambda: caller.log() == [("a", 1)])
        assert await answers(await caller.send("a", 2, through=2)) == [APPLIED]
        caller.cluster.cut(1)
        caller.cluster.let_go(1)
        assert await answers(old) == [APPLIED]
        assert caller.log() == [("a", 1), ("a", 2), ("a", 1)]


async def test_what_a_frozen_controller_has_got_is_applied_and_sent_again():
    async with calling() as caller:
        caller.cluster.pause_controller()
        old = await caller.send("a", 1)
        caller.cluster.cut(1)
        new = await caller.send("a", 2, through=2)
        caller.cluster.resume_controller()
        assert await answers(old, new) == [APPLIED] * 2
        assert (caller.log()[0], caller.log()[-1]) == (("a", 1), ("a", 2))


async def test_what_waited_too_long_times_out_and_is_applied_where_the_controller_has_it():
    async with calling(1, socket_patience_s=0.3, queue_patience_s=0.6) as caller:
        caller.cluster.pause_controller()
        assert await answers(*[await caller.send(user, 1) for user in "ab"]) == [TIMED_OUT] * 2
        assert caller.log() == []
        caller.cluster.resume_controller()
        assert ("a", 1) in caller.log()


async def test_another_controller_has_another_epoch_and_gets_what_the_old_one_had_not_done():
    async with calling() as caller:
        quorum = KafkaMetadataQuorum(caller.brokers)
        epoch = (await quorum.quorum()).leader_epoch
        caller.cluster.pause_controller()
        sent = [await caller.send(user, 1) for user in "ab"]
        caller.cluster.change_controller()
        assert await answers(*sent) == [APPLIED] * 2
        assert caller.log() == [("b", 1), ("a", 1)]
        assert (await quorum.quorum()).leader_epoch == epoch + 1


async def test_of_a_killed_broker_only_what_was_delivered_is_applied():
    async with calling() as caller:
        caller.cluster.pause_controller()
        sent = [await caller.send(user, 1) for user in "ab"]
        caller.cluster.kill(1)
        assert await answers(*sent) == [LOST] * 2
        assert await caller.admin.live_brokers() == [2]
        caller.cluster.resume_controller()
        assert caller.log() == [("a", 1)]
        caller.cluster.start(1)
        assert await answers(await caller.send("b", 2)) == [APPLIED]
