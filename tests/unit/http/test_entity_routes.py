"""One entity by its key: read, replaced and removed, each change an alteration like any other."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from tests.unit.http.fake_service import Answer, FakeService, credentials, document, send

ALICE = ClientQuotaEntity.of({"user": "alice"})
PATH = f"/quotas/{ALICE.key}"
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
VALUES = {PRODUCER: 1024.0, CONSUMER: 2.0**63}


@pytest.fixture(autouse=True)
def _stored(service: FakeService) -> None:
    service.brokers.quotas[ALICE] = dict(VALUES)


def pointers(answer: Answer) -> dict[str, str]:
    return {error["pointer"]: error["code"] for error in answer.document["errors"]}


async def test_an_entity_is_described_as_in_the_list(service: FakeService):
    answer = await service.send("GET", PATH)
    assert answer.status == 200
    assert answer.document["entity"] == {"user": "alice"}
    assert answer.document["entity_key"] == ALICE.key
    assert answer.document["values"] == {PRODUCER: 1024, CONSUMER: 2**63 - 1}
    listed = (await service.get("/quotas")).document
    assert {key: answer.document[key] for key in listed["quotas"][0]} == listed["quotas"][0]
    assert answer.document["cluster_id"] == listed["cluster_id"]
    assert answer.document["as_of"]


async def test_the_tag_is_of_the_values(service: FakeService):
    etag = (await service.send("GET", PATH)).headers["etag"]
    assert (await service.send("GET", PATH, if_none_match=etag)).status == 304
    service.brokers.quotas[ALICE] = {PRODUCER: 1.0}
    assert (await service.send("GET", PATH, if_none_match=etag)).status == 200


@pytest.mark.parametrize(
    "key",
    [
        ClientQuotaEntity.of({"user": "bob"}).key,
        ClientQuotaEntity.of({"user": "alice", "ip": "10.0.0.1"}).key,
        ClientQuotaEntity.of({"group": "alice"}).key,
        ClientQuotaEntity.of({}).key,
        f"{ALICE.key}A",
        "not-a-key",
        "EYJ1",
        "eyJ1c2VyIjogImFsaWNlIn0",
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_has_no_values_is_no_such_entity(service: FakeService, method: str, key: str):
    answer = await service.send(method, f"/quotas/{key}")
    assert (answer.status, answer.document["code"]) == (404, "no-such-entity")
    assert "send" not in service.log


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_word_that_is_no_route_is_an_unknown_path(service: FakeService, method: str):
    for principal in ("alice", None):
        answer = await send(service.app, method, "/quotas/word", headers=credentials(principal))
        assert (answer.status, answer.document["code"]) == (404, "not-found")


@given(st.dictionaries(st.sampled_from(ENTITY_TYPES), st.none() | st.text(), min_size=1))
def test_no_key_is_a_word(names: dict[str, str | None]):
    assert not re.fullmatch("[a-z]*", ClientQuotaEntity.of(names).key)


def test_no_other_route_below_quotas_is_taken_for_a_key(service: FakeService):
    words = {path.split("/")[2] for path in document()["paths"] if path.startswith("/quotas/")}
    assert not [word for word in words - {"{entity_key}"} if not re.fullmatch("[a-z]+", word)]


@pytest.mark.parametrize("path", ["/quotas/plans", "/quotas/alterations"])
async def test_the_words_below_quotas_are_no_keys(service: FakeService, path: str):
    for method in ("GET", "PUT", "DELETE"):
        answer = await send(service.app, method, path)
        assert answer.document["code"] == "method-not-allowed"


async def test_keys_that_are_not_named_are_removed(service: FakeService):
    body = {"values": {PRODUCER: 2048}, "reason": "INC-1"}
    answer = await service.send("PUT", PATH, body, idempotency_key="k")
    assert answer.status == 200
    (result,) = answer.document["results"]
    assert result["before"] == {PRODUCER: 1024, CONSUMER: 2**63 - 1}
    assert result["after"] == {PRODUCER: 2048}
    assert service.brokers.quotas[ALICE] == {PRODUCER: 2048.0}
    assert service.journal.intents[-1].reason == "INC-1"
    assert answer.headers["location"].endswith(answer.document["alteration_id"])
    again = await service.send("PUT", PATH, body, idempotency_key="k")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.document["alteration_id"] == answer.document["alteration_id"]
    assert answer.headers["etag"] == (await service.send("GET", PATH)).headers["etag"]
    assert "etag" not in again.headers, "what a replay found may not hold any more"


async def test_what_was_read_can_be_sent_back(service: FakeService):
    service.brokers.quotas[ALICE] = {**VALUES, "of_tomorrow": float("nan")}
    read = await service.send("GET", PATH)
    answer = await service.send("PUT", PATH, {"values": read.document["values"]})
    assert answer.document["results"][0]["changed"] is False
    values = {PRODUCER: 1, "of_tomorrow": "Infinity"}
    answer = await service.send("PUT", PATH, {"values": values})
    assert (answer.status, pointers(answer)) == (422, {"/values/of_tomorrow": "not-finite"})


async def test_all_values_are_removed(service: FakeService):
    answer = await service.send("DELETE", f"{PATH}?reason=INC-1", idempotency_key="k")
    assert answer.document["results"][0]["after"] == {}
    assert service.brokers.quotas[ALICE] == {}
    assert service.journal.intents[-1].reason == "INC-1"
    again = await service.send("DELETE", f"{PATH}?reason=INC-1", idempotency_key="k")
    assert again.headers["idempotent-replayed"] == "true"
    other = await service.send("DELETE", f"{PATH}?reason=INC-2", idempotency_key="k")
    assert (other.status, other.document["code"]) == (422, "idempotency-key-reused")


async def test_a_check_changes_nothing(service: FakeService):
    body = {"values": {}, "validate_only": True}
    for answer in (
        await service.send("PUT", PATH, body),
        await service.send("DELETE", f"{PATH}?validate_only=true"),
    ):
        assert answer.document["outcome"] == "validated"
        assert answer.document["results"][0]["after"] == {}
    assert service.brokers.quotas[ALICE] == VALUES


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_precondition_is_judged_as_an_expectation(
    service: FakeService, validate_only: bool
):
    etag = (await service.send("GET", PATH)).headers["etag"]
    body = {"values": {PRODUCER: 5}, "validate_only": validate_only}
    bob = f"/quotas/{ClientQuotaEntity.of({'user': 'bob'}).key}"
    for headers, path, status in [
        ({"if_match": '"another"'}, PATH, 412),
        ({"if_match": f"W/{etag}"}, PATH, 412),
        ({"if_none_match": "*"}, PATH, 412),
        ({"if_none_match": etag}, PATH, 412),
        ({"if_match": "*"}, bob, 412),
        ({"if_none_match": "*"}, bob, 200),
        ({"if_match": f'"another", {etag}'}, PATH, 200),
    ]:
        answer = await service.send("PUT", path, body, **headers)
        assert answer.status == status, headers
        if status == 412:
            (error,) = answer.document["errors"]
            assert (error["pointer"], error["code"]) == ("entity_key", "expectation-failed")
            current = {PRODUCER: 1024, CONSUMER: 2**63 - 1} if path == PATH else {}
            assert error["values"]["current"] == current


async def test_a_repeat_is_not_judged_by_its_precondition(service: FakeService):
    etag = (await service.send("GET", PATH)).headers["etag"]
    headers = {"if_match": etag, "idempotency_key": "k"}
    for _ in range(2):
        answer = await service.send("PUT", PATH, {"values": {PRODUCER: 5}}, **headers)
        assert (answer.status, answer.document["outcome"]) == (200, "applied")
    assert service.log.count("send") == 1


async def test_violations_point_into_the_request(service: FakeService):
    values = {PRODUCER: -1, "no_such": 1}
    answer = await service.send("PUT", PATH, {"values": values, "wait": "long"})
    assert answer.status == 422
    assert pointers(answer) == {
        f"/values/{PRODUCER}": "not-positive",
        "/values/no_such": "unknown-key",
        "/wait": "unknown-word",
    }
    nobody = ClientQuotaEntity.of({"user": ""})
    answer = await service.send("PUT", f"/quotas/{nobody.key}", {"values": {PRODUCER: 1}})
    assert (answer.status, pointers(answer)) == (422, {"entity_key": "empty-name"})
    answer = await service.send("DELETE", f"{PATH}?reason={'x' * 1001}")
    assert (answer.status, pointers(answer)) == (422, {"reason": "reason-too-long"})


async def test_a_denied_attempt_is_recorded_with_its_entity(service: FakeService):
    answer = await service.send("PUT", PATH, {"values": {}, "reason": "why"}, "bob")
    assert answer.status == 403
    answer = await service.send("DELETE", f"{PATH}?reason=why", principal="bob")
    assert answer.status == 403
    replacing, removing = [request for request, _ in service.journal.finals]
    for request in (replacing, removing):
        first = {"entities": 1, "first": [{"user": "alice"}], "attempts": 1}
        assert (request.reason, request.evidence["denied"]) == ("why", first)
