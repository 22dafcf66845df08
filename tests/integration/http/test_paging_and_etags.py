"""Pages of one answer, and answers that need not be sent again."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.http.pagination import page_token, query_fingerprint
from app.localdev.kafka import LocalKafka
from tests.integration.http.service_calls import C, P, pages
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, entity_of, setting
from tests.testkit.service import RunningService

ENTITIES = 250


@pytest.fixture(scope="module")
def team(raw: RawQuotas) -> Iterator[str]:
    """The beginning of the names of 250 users; everybody else's quotas are not asked for."""
    prefix = unique("team")
    names = [f"{prefix}-{number}" for number in range(ENTITIES)]
    raw.alter(*(setting({"user": name}, {P: 5.0}) for name in names))
    wait_until(lambda: entity_of({"user": names[-1]}) in raw.everything())
    yield prefix
    raw.alter(*(setting({"user": name}, {P: None, C: None}) for name in names))


@pytest.fixture
def api(service: RunningService) -> httpx.Client:
    return service.api("bob")


@contextmanager
def concurrent_writes(broker: LocalKafka, prefix: str) -> Iterator[threading.Event]:
    """Change the users, remove some and add others, until the block ends.

    The event is set once a round is through.
    """
    stop, through = threading.Event(), threading.Event()

    def write() -> None:
        with RawQuotas(broker.bootstrap_servers) as raw:
            for number in itertools.cycle(range(ENTITIES)):
                if stop.is_set():
                    break
                raw.alter(
                    setting({"user": f"{prefix}-{number}"}, {P: None, C: 7.0}),
                    setting({"user": f"{prefix}-{number}-more"}, {P: 5.0}),
                )
                raw.alter(setting({"user": f"{prefix}-{number}"}, {C: None}))
                through.set()
                raw.alter(
                    setting({"user": f"{prefix}-{number}-more"}, {P: None}),
                    setting({"user": f"{prefix}-{number}"}, {P: 5.0}),
                )
                wait_until(lambda: raw.stored({"user": f"{prefix}-{number}"}) == {P: 5.0})  # noqa: B023

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield through
    finally:
        stop.set()
        writer.join()


def test_each_entity_is_on_one_page_and_all_pages_are_sorted(api: httpx.Client, team: str) -> None:
    listed = [
        quota["entity"]["user"]
        for page in pages(api, "/quotas", page_size=7, filter=f"user^={team}")
        for quota in page["quotas"]
    ]
    assert listed == sorted(f"{team}-{number}" for number in range(ENTITIES))


@pytest.mark.parametrize("page_size", [249, 250, 251, 10_000])
def test_the_last_page_has_no_token(api: httpx.Client, team: str, page_size: int) -> None:
    sizes = [
        len(page["quotas"])
        for page in pages(api, "/quotas", page_size=page_size, filter=f"user^={team}")
    ]
    full, rest = divmod(ENTITIES, page_size)
    assert sizes == [page_size] * full + [rest] * bool(rest)


def test_an_entity_that_stays_is_listed_once_under_concurrent_writes(
    api: httpx.Client, team: str, raw: RawQuotas, broker: LocalKafka
) -> None:
    steady = [f"{team}-{number}-steady" for number in range(0, ENTITIES, 10)]
    raw.alter(*(setting({"user": name}, {P: 5.0}) for name in steady))
    wait_until(lambda: entity_of({"user": steady[-1]}) in raw.everything())
    try:
        with concurrent_writes(broker, team) as through:
            assert through.wait(30)
            listed = list(pages(api, "/quotas", page_size=10, filter=f"user^={team}"))
    finally:
        raw.alter(*(setting({"user": name}, {P: None}) for name in steady))
    wait_until(
        lambda: (
            next(pages(api, "/quotas", page_size=1, filter=f"user^={team}"))["total"] == ENTITIES
        )
    )
    entities = [quota["entity"]["user"] for page in listed for quota in page["quotas"]]
    assert entities == sorted(set(entities))
    assert set(steady) <= set(entities)
    times = [page["as_of"] for page in listed]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_each_page_says_how_many_entities_match_and_a_whole_answer_does_not(
    api: httpx.Client, team: str
) -> None:
    parameters = {"filter": f"user^={team}"}
    assert {page["total"] for page in pages(api, "/quotas", page_size=100, **parameters)} == {
        ENTITIES
    }
    assert "total" not in api.get("/quotas", params=parameters).json()
    (page,) = pages(api, "/quotas", page_size=10, filter=f"user={unique()}")
    assert (page["quotas"], page["total"]) == ([], 0)


def test_pages_of_different_sizes_go_on_where_the_last_one_ended(
    api: httpx.Client, team: str
) -> None:
    parameters = {"filter": f"user^={team}"}
    first = api.get("/quotas", params={**parameters, "page_size": 3}).json()
    token = first["next_page_token"]
    again = [
        api.get("/quotas", params={**parameters, "page_size": size, "page_token": token}).json()
        for size in (2, 5)
    ]
    rest = api.get("/quotas", params={**parameters, "page_token": token}).json()
    users = [quota["entity"]["user"] for quota in rest["quotas"]]
    assert len(users) == ENTITIES - 3
    assert [[quota["entity"]["user"] for quota in page["quotas"]] for page in again] == [
        users[:2],
        users[:5],
    ]


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
    conditions = {"filter": (), "strict": False, "has_key": ()}
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
