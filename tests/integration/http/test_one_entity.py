"""One entity by its key on a real cluster: what the broker holds, and what the log says of it."""

from typing import Any

import httpx
import pytest

from app.domain.entities import ClientQuotaEntity
from tests.integration.http.service_calls import C, P
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas, entity_of
from tests.testkit.service import RunningService


@pytest.fixture
def names() -> dict[str, str | None]:
    return {"user": unique(), "client-id": None}


@pytest.fixture
def path(names: dict[str, str | None]) -> str:
    return f"/quotas/{ClientQuotaEntity.of(names).key}"


def rows(service: RunningService, names: dict[str, str | None]) -> list[dict[str, Any]]:
    answer = service.api("auditor").get("/audit", params={"entity": f"user={names['user']}"})
    return list(answer.json()["rows"])


def test_an_entity_is_made_replaced_and_removed(
    service: RunningService, raw: RawQuotas, names: dict[str, str | None], path: str
) -> None:
    alice = service.api()
    assert problem_of(alice.get(path), 404)["code"] == "no-such-entity"
    assert alice.put(path, json={"values": {P: 5, C: 7}}).status_code == 200
    read = alice.get(path)
    assert read.json()["values"] == {P: 5, C: 7}
    assert read.headers["ETag"] == alice.get(path).headers["ETag"]
    replaced = alice.put(
        path, json={"values": {C: 9}}, headers={"If-Match": read.headers["ETag"]}
    ).json()
    assert replaced["results"][0]["before"] == {P: 5, C: 7}
    assert raw.everything()[entity_of(names)] == {C: 9}
    removed = alice.delete(path, params={"reason": "INC-1"})
    assert (removed.json()["outcome"], removed.json()["readable"]) == ("applied", True)
    assert entity_of(names) not in raw.everything()
    assert [row["after"] for row in rows(service, names)] == [{}, {C: 9}, {P: 5, C: 7}]
    back = alice.post(f"{removed.headers['Location']}/revert", json={})
    assert back.json()["results"][0]["after"] == {C: 9}


def test_what_has_changed_since_is_not_replaced(
    service: RunningService, raw: RawQuotas, names: dict[str, str | None], path: str
) -> None:
    alice = service.api()
    alice.put(path, json={"values": {P: 5}})
    etag = alice.get(path).headers["ETag"]
    alice.put(path, json={"values": {P: 6}})
    for answer in (
        alice.put(path, json={"values": {P: 7}}, headers={"If-Match": etag}),
        alice.delete(path, headers={"If-Match": etag}),
        alice.put(path, json={"values": {P: 7}}, headers={"If-None-Match": "*"}),
    ):
        (error,) = problem_of(answer, 412)["errors"]
        assert error["values"]["current"] == {P: 6}
    assert raw.everything()[entity_of(names)] == {P: 6}
    assert [row["outcome"] for row in rows(service, names)] == ["refused"] * 3 + ["applied"] * 2


def test_callers_see_who_they_are(service: RunningService) -> None:
    me = {name: service.api(name).get("/me").json() for name in ("alice", "bob", "mallory", "root")}
    assert {name: document["principal"] for name, document in me.items()} == {
        name: f"User:{name}" for name in me
    }
    may = {name: document["permissions"] for name, document in me.items()}
    assert may["alice"]["alter"]
    assert (may["bob"]["describe"], may["bob"]["alter"]) == (True, False)
    assert not any(may["mallory"].values())
    assert may["root"]["describe"]
    assert service.api("auditor").get("/me").json()["permissions"]["audit"]
    assert httpx.get(f"{service.url}/me").status_code == 401
