"""Altering and repeating, over HTTP; every answer fits the OpenAPI document."""

import asyncio

import pytest
from structlog.testing import capture_logs

from app.domain.alterations import Outcome
from app.service.cluster_ports import EntityVerdict
from app.service.off_loop import MANY
from tests.unit.http.altering import ALICE, RATE, answering
from tests.unit.http.fake_service import ALTERATIONS, FakeService, setting


@pytest.fixture
def service() -> FakeService:
    with capture_logs():
        return FakeService()


async def test_a_repeated_request_is_answered_with_what_became_of_the_first(service: FakeService):
    first = await service.post(ALTERATIONS, setting(9, reason="r"), idempotency_key='"k"')
    second = await service.post(ALTERATIONS, setting(9.0, reason="r"), idempotency_key="k")
    assert (first.status, second.status) == (200, 200)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert second.document["results"] == first.document["results"]
    assert service.log.count("send") == 1
    assert service.count("idempotency_total", result="new") == 1
    assert service.count("idempotency_total", result="replay") == 1
    assert service.count("quota_alterations_total", verdict="applied") == 1


async def test_a_key_of_another_principal_is_another_key(service: FakeService):
    first = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    second = await service.post(ALTERATIONS, setting(9), "bert", idempotency_key="k")
    assert second.document["alteration_id"] != first.document["alteration_id"]
    assert "idempotent-replayed" not in second.headers


async def test_another_body_with_the_same_key_is_refused(service: FakeService):
    await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    answer = await service.post(ALTERATIONS, setting(10), idempotency_key="k")
    assert (answer.status, answer.document["code"]) == (422, "idempotency-key-reused")
    assert [one["pointer"] for one in answer.document["errors"]] == ["Idempotency-Key"]
    assert service.count("idempotency_total", result="mismatch") == 1


async def test_while_the_first_request_runs_the_second_is_told_so(service: FakeService):
    service.brokers.gate = asyncio.Event()
    running = asyncio.create_task(service.post(ALTERATIONS, setting(9), idempotency_key="k"))
    while not service.journal.intents:
        await asyncio.sleep(0)
    answer = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    assert (answer.status, answer.document["code"]) == (409, "idempotency-key-running")
    assert answer.document["retry"] == "same-key-only"
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["location"] == f"{ALTERATIONS}/{answer.document['alteration_id']}"
    assert service.count("idempotency_total", result="conflict") == 1
    service.brokers.gate.set()
    assert (await running).status == 200


async def test_errors_are_replayed_too(service: FakeService):
    service.brokers.fault = answering(EntityVerdict(Outcome.UNKNOWN), ALICE)
    first = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    second = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    assert (first.status, second.status) == (504, 504)
    assert second.document["alteration_id"] == first.document["alteration_id"]
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert service.count("idempotency_total", result="replay") == 1
    assert service.count("quota_alterations_total", verdict="unknown") == 1


async def test_a_failed_expectation_stays_a_failed_expectation(service: FakeService):
    body = setting(9)
    body["alterations"][0]["expected"] = {RATE: 5}
    service.brokers.quotas[ALICE] = {RATE: 6.0}
    first = await service.post(ALTERATIONS, body, idempotency_key="k")
    second = await service.post(ALTERATIONS, body, idempotency_key="k")
    assert (first.status, second.status) == (412, 412)
    assert second.document["errors"] == first.document["errors"]
    assert second.document["alteration_id"] == first.document["alteration_id"]
    assert second.headers["idempotent-replayed"] == "true"


async def test_nothing_is_kept_of_a_request_that_breaks_a_rule(service: FakeService):
    answer = await service.post(ALTERATIONS, setting(-1), idempotency_key="k")
    assert answer.status == 422
    answer = await service.post(ALTERATIONS, setting(1), idempotency_key="k")
    assert (answer.status, "idempotent-replayed" in answer.headers) == (200, False)
    assert service.count("idempotency_total", result="new") == 1


async def test_a_check_takes_no_key(service: FakeService):
    for _ in range(2):
        body = setting(9, validate_only=True)
        answer = await service.post(ALTERATIONS, body, idempotency_key="k")
        assert (answer.status, "idempotent-replayed" in answer.headers) == (200, False)
    assert service.count("idempotency_total", result="new") == 0
    answer = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    assert answer.status == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"idempotency_key": ""}, "bad-idempotency-key"),
        ({"idempotency_key": "k" * 256}, "bad-idempotency-key"),
        ({"supersede": "the last one"}, "bad-supersede"),
    ],
)
async def test_bad_headers_are_refused_and_nothing_is_sent(
    service: FakeService, headers: dict[str, str], code: str
):
    answer = await service.post(ALTERATIONS, setting(9), **headers)
    assert (answer.status, answer.document["code"]) == (400, code)
    assert "send" not in service.log


async def test_the_parts_of_an_alteration_are_timed(service: FakeService):
    await service.post(ALTERATIONS, setting(9))
    for phase in ("authz", "tx1", "kafka", "tx2"):
        assert service.count("quota_alteration_phase_seconds_count", phase=phase) == 1
    assert service.count("authz_acl_age_seconds") == 1.5


async def test_a_large_alteration_is_answered_and_shown_whole(service: FakeService):
    body = setting(9)
    body["alterations"] = [setting(9, f"user-{n}")["alterations"][0] for n in range(2 * MANY)]
    answer = await service.post(ALTERATIONS, body)
    users = [{"user": f"user-{n}"} for n in range(2 * MANY)]
    assert (answer.status, answer.document["outcome"]) == (200, "applied")
    assert [one["entity"] for one in answer.document["results"]] == users
    shown = await service.get(answer.headers["location"])
    assert shown.document["results"] == answer.document["results"]
