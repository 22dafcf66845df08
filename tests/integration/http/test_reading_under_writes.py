"""Reads while quotas change: one state of the broker, never older than the answer says."""

import random
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from tests.integration.http.service_calls import C, I, M, P, R, pages
from tests.integration.http.worlds import enforced, limits_of
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Names, RawQuotas, entity_of, setting
from tests.testkit.service import RunningService

PAIRS = 40
READINGS = 25
STEPS = 25


class Twins:
    """Users who are altered together and to the same value, by the raw protocol.

    Attributes:
        names: Of the users.
        visible: When the broker showed each value, by the value.
    """

    def __init__(self, raw: RawQuotas) -> None:
        self.names = [unique("twin") for _ in range(PAIRS)]
        self.visible: dict[int, datetime] = {}
        self._raw = raw

    def become(self, value: int | None) -> None:
        """Set all of them at once, and wait until the broker shows it."""
        self._raw.alter(*(setting({"user": name}, {P: value}) for name in self.names))
        wanted = {} if value is None else {P: float(value)}
        wait_until(lambda: self._raw.stored({"user": self.names[-1]}) == wanted)
        if value is not None:
            self.visible[value] = datetime.now(UTC)

    def check(self, values: list[Any], as_of: str, number: int = PAIRS) -> None:
        """Fail where an answer mixes two states, is older than it says, or lacks some of them."""
        at = datetime.fromisoformat(as_of)
        assert at <= datetime.now(UTC)
        before = [item for item, since in list(self.visible.items()) if since < at]
        if values or before:
            (value,) = set(values)
            assert len(values) == number
            assert (value or 0) >= max(before, default=0)


@pytest.fixture
def twins(broker: LocalKafka) -> Iterator[Twins]:
    """Twins whose value grows as fast as the broker allows, until the test ends."""
    stop = threading.Event()
    with RawQuotas(broker.bootstrap_servers) as raw:
        both = Twins(raw)
        both.become(1)

        def grow() -> None:
            value = 1
            while not stop.is_set():
                value += 1
                both.become(value)

        writer = threading.Thread(target=grow)
        writer.start()
        yield both
        stop.set()
        writer.join()
        assert max(both.visible) > 1
        both.become(None)


@pytest.mark.parametrize("max_age_ms", [0, 50, 1000])
def test_no_answer_mixes_two_states_or_is_older_than_it_says(
    service: RunningService, twins: Twins, max_age_ms: int
) -> None:
    api = service.api("bob")
    parameters: dict[str, str | int] = {"filter": "user^=twin", "max_age_ms": max_age_ms}
    identities = [{"user": name} for name in twins.names]
    _json(api.get("/quotas"))  # no image is older than the twins from now on
    for _ in range(READINGS):
        listed = _json(api.get("/quotas", params=parameters))
        twins.check(_listed(twins, [listed]), listed["as_of"])
        listed_pages = list(pages(api, "/quotas", **parameters, page_size=7))
        for page in listed_pages:
            twins.check(_listed(twins, [page]), page["as_of"], len(page["quotas"]))
        assert len(_listed(twins, listed_pages)) == PAIRS
        resolved = _json(
            api.post("/quotas/resolve", json={"identities": identities, "max_age_ms": max_age_ms})
        )
        values = [result["quotas"][P]["value"] for result in resolved["results"]]
        twins.check(values, resolved["as_of"])


def test_whatever_changes_the_answer_is_what_the_broker_has(
    service: RunningService, rules: RawQuotas
) -> None:
    """A walk at random: each answer is made from the one before it and what has changed."""
    chance = random.Random(1)
    api = service.api("bob")
    names = [None, "", "<default>", "é", "x" * 140, *(f"name-{number}" for number in range(25))]
    world: dict[Any, dict[str, float]] = {}
    for _ in range(STEPS):
        for _ in range(chance.choice((0, 1, 1, 3, 40))):
            entity, key = _drawn(chance, names)
            values = world.setdefault(entity_of(entity), {})
            values[key] = float(chance.randrange(1, 100))
            if chance.random() < 0.4:
                del values[key]
        world = {entity: values for entity, values in world.items() if values}
        rules.become(world)
        listed = _json(api.get("/quotas", params={"max_age_ms": 0}))
        described = [(entity_of(quota["entity"]), quota["values"]) for quota in listed["quotas"]]
        assert dict(described) == world
        keys = [quota["entity_key"] for quota in listed["quotas"]]
        whole = [key for page in pages(api, "/quotas", page_size=9) for key in _keys(page)]
        assert whole == keys
        some = chance.choice([name for name in names if name])
        some_listed = _json(api.get("/quotas", params={"filter": f"user={some}"}))
        assert _keys(some_listed) == [
            quota["entity_key"] for quota in listed["quotas"] if quota["entity"].get("user") == some
        ]
        identity = {"user": some, "client-id": chance.choice([name for name in names if name])}
        resolved = _json(api.get("/quotas/resolve", params={**identity, "max_age_ms": 0}))
        assert limits_of(resolved) == enforced(world, identity)


def _drawn(chance: random.Random, names: list[str | None]) -> tuple[Names, str]:
    usable = [name for name in names if name != ""]
    kinds = chance.choice((["user"], ["client-id"], ["user", "client-id"], ["ip"]))
    if kinds == ["ip"]:
        return {"ip": chance.choice((None, "10.0.0.1", "10.0.0.2"))}, I
    return {kind: chance.choice(usable) for kind in kinds}, chance.choice((P, C, R, M))


def _listed(twins: Twins, found: list[Mapping[str, Any]]) -> list[float]:
    """Return the value of each of the twins that is listed, once for each time that it is."""
    return [
        quota["values"][P]
        for page in found
        for quota in page["quotas"]
        if quota["entity"]["user"] in twins.names
    ]


def _keys(page: Mapping[str, Any]) -> list[str]:
    return [quota["entity_key"] for quota in page["quotas"]]


def _json(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == httpx.codes.OK, answer.text
    document: dict[str, Any] = answer.json()
    return document
