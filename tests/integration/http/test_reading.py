"""Pages, answers that need not be sent again, and one state of the broker while quotas change."""

import random
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.http.query_params import page_token, query_fingerprint
from app.localdev.kafka import LocalKafka
from tests.integration.http.service_calls import C, I, M, P, R, enforced, limits_of, pages
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Names, RawQuotas, entity_of, setting
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

ENTITIES = 250


@pytest.fixture(scope="module")
def team(raw: RawQuotas) -> Iterator[str]:
    """The beginning of the names of 250 users; everybody else's quotas are not asked for."""
    prefix = unique("team")
    names = [f"{prefix}-{number}" for number in range(ENTITIES)]
    raw.alter(*(setting({"user": name}, {P: 5.0}) for name in names))
    wait_until(lambda: entity_of({"user": names[-1]}) in raw.everything())
    yield prefix
    raw.alter(*(setting({"user": name}, {P: None}) for name in names))


@pytest.fixture
def api(service: RunningService) -> httpx.Client:
    return service.api("bob")


def users_of(*listed: Mapping[str, Any]) -> list[str]:
    return [quota["entity"]["user"] for page in listed for quota in page["quotas"]]


@pytest.mark.parametrize("page_size", [7, 249, 250, 251, 10_000])
def test_each_entity_is_on_one_page_and_all_pages_are_sorted_and_say_how_many_there_are(
    api: httpx.Client, team: str, page_size: int
) -> None:
    listed = list(pages(api, "/quotas", page_size=page_size, filter=f"user^={team}"))
    full, rest = divmod(ENTITIES, page_size)
    assert [len(page["quotas"]) for page in listed] == [page_size] * full + [rest] * bool(rest)
    assert users_of(*listed) == sorted(f"{team}-{number}" for number in range(ENTITIES))
    assert {page["total"] for page in listed} == {ENTITIES}


def test_a_whole_answer_has_no_total_and_an_empty_page_has(api: httpx.Client) -> None:
    parameters = {"filter": f"user={unique()}"}
    assert "total" not in api.get("/quotas", params=parameters).json()
    (page,) = pages(api, "/quotas", page_size=10, **parameters)
    assert (page["quotas"], page["total"]) == ([], 0)


def test_pages_of_different_sizes_go_on_where_the_last_one_ended(
    api: httpx.Client, team: str
) -> None:
    parameters = {"filter": f"user^={team}"}
    first = api.get("/quotas", params={**parameters, "page_size": 3}).json()
    token = first["next_page_token"]
    again = [
        api.get("/quotas", params={**parameters, "page_size": number, "page_token": token}).json()
        for number in (2, 5)
    ]
    rest = api.get("/quotas", params={**parameters, "page_token": token}).json()
    users = users_of(rest)
    assert len(users) == ENTITIES - 3
    assert [users_of(page) for page in again] == [users[:2], users[:5]]


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "text/csv", "application/yaml"])
def test_other_formats_carry_in_headers_what_only_json_has_members_for(
    api: httpx.Client, team: str, media_type: str
) -> None:
    parameters = {"filter": f"user^={team}", "page_size": 1}
    page = api.get("/quotas", params=parameters).json()
    headers = api.get("/quotas", params=parameters, headers={"Accept": media_type}).headers
    assert headers["X-Next-Page-Token"] == page["next_page_token"]
    assert headers["X-Cluster-Id"] == page["cluster_id"]
    assert headers["X-As-Of"] >= page["as_of"]


def refused(answer: httpx.Response) -> bool:
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "bad-page-token"), answer.text
    return [error["pointer"] for error in problem["errors"]] in (["page_token"], [])


def test_a_token_of_another_filter_is_refused(api: httpx.Client, team: str) -> None:
    parameters: dict[str, Any] = {"filter": [f"user^={team}"], "page_size": 10}
    token = api.get("/quotas", params=parameters).json()["next_page_token"]
    mine = {**parameters, "page_token": token}
    assert api.get("/quotas", params=mine).status_code == 200
    others: list[dict[str, Any]] = [
        {"filter": [f"user^={team}-1"]},
        {"filter": [f"user^={team}", "client-id:absent"]},
        {"filter": []},
        {"strict": "true"},
        {"has_key": [P]},
    ]
    assert all(refused(api.get("/quotas", params={**mine, **other})) for other in others)
    assert refused(api.get("/audit", params={"page_token": token}))


@pytest.mark.parametrize(
    "position", [None, 1, [], "x", {"user": 1}, {"user": ["a"]}, {"topic": "t"}, {"user": {}}]
)
def test_a_token_with_a_forged_position_is_refused(api: httpx.Client, position: Any) -> None:
    conditions = {"filter": (), "strict": False, "has_key": (), "owner": ()}
    token = page_token(position, query_fingerprint("quotas", conditions))
    assert refused(api.get("/quotas", params={"page_token": token}))
    valid = page_token({"user": "a"}, query_fingerprint("quotas", conditions))
    assert api.get("/quotas", params={"page_token": valid}).status_code == 200


def test_an_answer_that_says_the_same_need_not_be_sent_again(api: httpx.Client, team: str) -> None:
    parameters = {"filter": f"user^={team}"}
    first = api.get("/quotas", params=parameters)
    etag = first.headers["ETag"]
    assert api.get("/quotas", params=parameters).headers["ETag"] == etag
    for header in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = api.get("/quotas", params=parameters, headers={"If-None-Match": header})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == etag
    for header in ('"other"', etag[:-1], etag.strip('"')):
        other = api.get("/quotas", params=parameters, headers={"If-None-Match": header})
        assert other.status_code == 200
        assert other.json()["quotas"] == first.json()["quotas"]


PAIRS = 40
READINGS = size(10, 25)
STEPS = 25


class Twins:
    """Users who are altered together and to the same value, by the raw protocol.

    Between them in the order of pages are others, who come and go.

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
        passing = value if value and value % 2 else None
        others = (setting({"user": f"{name}-passing"}, {P: passing}) for name in self.names)
        self._raw.alter(*others, *(setting({"user": name}, {P: value}) for name in self.names))
        wanted = {} if value is None else {P: float(value)}
        wait_until(lambda: self._raw.stored({"user": self.names[-1]}) == wanted)
        if value is not None:
            self.visible[value] = datetime.now(UTC)

    def check(self, values: list[Any], as_of: str, number: int = PAIRS) -> None:
        """Fail where an answer mixes two states, is older than it says, or lacks some of them."""
        at = datetime.fromisoformat(as_of)
        assert at <= datetime.now(UTC)
        before = [item for item, since in list(self.visible.items()) if since < at]
        if number and (values or before):
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
def test_no_answer_mixes_two_states_or_is_older_than_it_says_and_pages_show_who_stays_once(
    api: httpx.Client, twins: Twins, max_age_ms: int
) -> None:
    parameters: dict[str, str | int] = {"filter": "user^=twin", "max_age_ms": max_age_ms}
    identities = [{"user": name} for name in twins.names]
    _json(api.get("/quotas"))  # no image is older than the twins from now on
    moved = []
    for _ in range(READINGS):
        listed = _json(api.get("/quotas", params=parameters))
        twins.check(_listed(twins, [listed]), listed["as_of"])
        listed_pages = list(pages(api, "/quotas", **parameters, page_size=7))
        for page in listed_pages:
            values = _listed(twins, [page])
            twins.check(values, page["as_of"], len(values))
        users = users_of(*listed_pages)
        assert users == sorted(set(users))
        assert set(twins.names) <= set(users)
        if not max_age_ms:
            times = [page["as_of"] for page in listed_pages]
            assert times == sorted(times)
        moved.append(len(set(_listed(twins, listed_pages))) > 1)
        resolved = _json(
            api.post("/quotas/resolve", json={"identities": identities, "max_age_ms": max_age_ms})
        )
        values = [result["quotas"][P]["value"] for result in resolved["results"]]
        twins.check(values, resolved["as_of"])
    assert max_age_ms or any(moved), "nothing changes from page to page"


def test_whatever_changes_the_answer_is_what_the_broker_has(
    api: httpx.Client, rules: RawQuotas
) -> None:
    """A walk at random: each answer is made from the one before it and what has changed."""
    chance = random.Random(1)
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
