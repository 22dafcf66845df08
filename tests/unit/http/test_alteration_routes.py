"""Altering, repeating and reverting over HTTP; every response fits the OpenAPI document."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Outcome
from app.domain.entities import ClientQuotaEntity
from app.service.ports.brokers import Verdict
from app.service.runtime.tasks import MANY
from tests.testkit.fake_ports import Verdicts, refused
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.http.fake_service import ALTERATIONS, Answer, FakeService, setting

ALICE = ClientQuotaEntity.of({"user": "alice"})
BOB = ClientQuotaEntity.of({"user": "bob"})
RATE = "producer_byte_rate"


def answering(verdict: Verdict, *entities: ClientQuotaEntity) -> Any:
    def fault(alterations: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        if validate_only:
            return {}
        return {
            alteration.entity: verdict
            for alteration in alterations
            if alteration.entity in entities
        }

    return fault


async def altered(service: FakeService, body: Any) -> str:
    answer = await service.post(ALTERATIONS, body)
    return str(answer.document["alteration_id"])


async def revert(
    service: FakeService, alteration_id: str, body: Any = None, **options: Any
) -> Answer:
    return await service.post(f"{ALTERATIONS}/{alteration_id}/revert", body or {}, **options)


async def test_a_repeated_request_is_answered_with_what_became_of_the_first(service: FakeService):
    first = await service.post(ALTERATIONS, setting(9, reason="r"), idempotency_key='"k"')
    second = await service.post(ALTERATIONS, setting(9.0, reason="r"), idempotency_key="k")
    assert (first.status, second.status) == (200, 200)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert second.document["results"] == first.document["results"]
    assert second.document["alteration_id"] == first.document["alteration_id"]
    assert (first.document["readable"], second.document["readable"]) == (True, None)
    assert (service.log.count("record_intent"), service.log.count("send")) == (1, 1)
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
    assert [error["pointer"] for error in answer.document["errors"]] == ["Idempotency-Key"]
    assert service.count("idempotency_total", result="mismatch") == 1


async def test_while_the_first_request_runs_the_second_is_a_conflict(service: FakeService):
    running = await service.held(setting(9), idempotency_key="k")
    answer = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    assert (answer.status, answer.document["code"]) == (409, "idempotency-key-running")
    assert answer.document["retry"] == "same-key-only"
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["location"] == f"{ALTERATIONS}/{answer.document['alteration_id']}"
    assert service.count("idempotency_total", result="conflict") == 1
    service.brokers.gate.set()
    assert (await running).status == 200


async def test_errors_are_replayed_too(service: FakeService):
    service.brokers.fault = answering(Verdict(Outcome.UNKNOWN), ALICE)
    first = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    second = await service.post(ALTERATIONS, setting(9), idempotency_key="k")
    assert (first.status, second.status, service.log.count("send")) == (504, 504, 1)
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


async def test_a_request_that_breaks_a_rule_leaves_no_key(service: FakeService):
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


async def test_the_phases_of_an_alteration_are_timed(service: FakeService):
    await service.post(ALTERATIONS, setting(9))
    for phase in ("authz", "tx1", "kafka", "tx2"):
        assert service.count("quota_alteration_phase_seconds_count", phase=phase) == 1
    assert service.count("authz_acl_age_seconds") == 1.5


async def test_a_large_alteration_is_answered_and_recorded_whole(service: FakeService):
    body = setting(9)
    body["alterations"] = [setting(9, f"user-{n}")["alterations"][0] for n in range(2 * MANY)]
    answer = await service.post(ALTERATIONS, body)
    users = [{"user": f"user-{n}"} for n in range(2 * MANY)]
    assert (answer.status, answer.document["outcome"]) == (200, "applied")
    assert [result["entity"] for result in answer.document["results"]] == users
    record = await service.get(answer.headers["location"])
    assert record.document["results"] == answer.document["results"]


async def test_a_user_that_is_named_like_a_principal_has_a_warning(service: FakeService):
    answer = await service.post(ALTERATIONS, setting(9000, "User:alice"))
    (warning,) = answer.document["results"][0]["warnings"]
    assert "'User:User:alice'" in warning
    answer = await service.post(ALTERATIONS, setting(9000))
    assert "warnings" not in answer.document["results"][0]


async def test_a_check_warns_of_a_default_of_other_tools_and_its_removal_does_not(
    service: FakeService,
):
    answer = await service.post(ALTERATIONS, {**setting(9000, "<default>"), "validate_only": True})
    (warning,) = answer.document["results"][0]["warnings"]
    assert warning.endswith(
        "the user '<default>' alone, and not the default, which is {user=<default>}."
    )
    removal = setting(9, "<default>")
    removal["alterations"][0]["ops"] = [{"key": "producer_byte_rate", "remove": True}]
    answer = await service.post(ALTERATIONS, removal)
    assert "warnings" not in answer.document["results"][0]


async def test_what_follows_a_key_is_not_repeated(service: FakeService):
    body = setting(9)
    body["alterations"][0]["ops"] = [{"key": "SCRAM-SHA-256=[password=canary]", "value": -1}] * 2
    answer = await service.post(ALTERATIONS, body)
    errors = answer.document["errors"]
    assert {error["code"] for error in errors} == {"unknown-key", "duplicate-key", "not-positive"}
    assert "canary" not in str(answer.document)


NOBODY = "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f"


async def test_taking_back_restores_what_held_before_and_is_an_alteration(service: FakeService):
    service.brokers.quotas[ALICE] = {RATE: 5.0, "consumer_byte_rate": 7.0}
    body = setting(9)
    body["alterations"][0]["ops"].append({"key": "consumer_byte_rate", "remove": True})
    alteration_id = await altered(service, body)
    answer = await revert(service, alteration_id, {"reason": "INC-1 is over"})
    assert answer.status == 200
    assert answer.document["outcome"] == "applied"
    assert answer.document["alteration_id"] != alteration_id
    assert answer.headers["location"] == f"{ALTERATIONS}/{answer.document['alteration_id']}"
    (result,) = answer.document["results"]
    assert result["before"] == {RATE: 9}
    assert result["after"] == {RATE: 5, "consumer_byte_rate": 7}
    assert service.brokers.quotas[ALICE] == {RATE: 5.0, "consumer_byte_rate": 7.0}
    intent = service.journal.intents[-1]
    assert (intent.action, intent.reason) == ("revert", "INC-1 is over")


async def test_what_was_taken_back_can_be_taken_back(service: FakeService):
    first = await altered(service, setting(9))
    second = await revert(service, first)
    assert service.brokers.quotas[ALICE] == {}
    assert (await revert(service, second.document["alteration_id"])).status == 200
    assert service.brokers.quotas[ALICE] == {RATE: 9.0}


async def test_checking_whether_it_can_be_taken_back_changes_nothing(service: FakeService):
    alteration_id = await altered(service, setting(9))
    answer = await revert(service, alteration_id, {"validate_only": True})
    assert (answer.status, answer.document["outcome"]) == (200, "validated")
    assert service.brokers.quotas[ALICE] == {RATE: 9.0}


async def test_where_the_values_have_changed_since_nothing_is_taken_back(service: FakeService):
    alteration_id = await altered(service, setting(9))
    service.brokers.quotas[ALICE] = {RATE: 10.0}
    answer = await revert(service, alteration_id)
    assert (answer.status, answer.document["code"]) == (412, "expectation-failed")
    (error,) = answer.document["errors"]
    assert error["pointer"] == "alteration_id"
    assert error["values"] == {"entity": {"user": "alice"}, "current": {RATE: 10}}
    assert service.brokers.quotas[ALICE] == {RATE: 10.0}


async def test_only_what_was_applied_is_taken_back(service: FakeService):
    service.brokers.fault = answering(refused("INVALID_REQUEST"), BOB)
    body = setting(9, all_or_nothing=False)
    body["alterations"] += setting(9, "bob")["alterations"]
    answer = await service.post(ALTERATIONS, body)
    assert answer.status == 207
    answer = await revert(service, answer.document["alteration_id"])
    assert [result["entity"] for result in answer.document["results"]] == [{"user": "alice"}]


@pytest.mark.parametrize(
    ("alteration_id", "principal"), [(NOBODY, "alice"), ("none", "alice"), ("alice's", "bert")]
)
async def test_an_alteration_that_does_not_exist_or_is_another_s_cannot_be_reverted(
    service: FakeService, alteration_id: str, principal: str
):
    own_id = await altered(service, setting(9))
    requested_id = own_id if alteration_id == "alice's" else alteration_id
    answer = await revert(service, requested_id, principal=principal)
    assert (answer.status, answer.document["code"]) == (404, "not-found")
    assert service.brokers.quotas[ALICE] == {RATE: 9.0}


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (None, "nothing-to-revert"),
        (refused("INVALID_REQUEST"), "nothing-to-revert"),
        (Verdict(Outcome.UNKNOWN), "not-concluded"),
    ],
    ids=["nothing changed", "refused", "unknown"],
)
async def test_what_was_not_applied_cannot_be_taken_back(
    service: FakeService, verdict: Verdict | None, code: str
):
    if verdict is None:
        service.brokers.quotas[ALICE] = {RATE: 9.0}
    else:
        service.brokers.fault = answering(verdict, ALICE)
    answer = await revert(service, await altered(service, setting(9)))
    assert (answer.status, answer.document["code"]) == (422, code)
    assert (answer.document["errors"], bool(answer.document["detail"])) == ([], True)


async def test_what_still_runs_cannot_be_taken_back_yet(service: FakeService):
    running = await service.held(setting(9))
    answer = await revert(service, service.journal.intents[0].alteration_id)
    assert (answer.status, answer.document["code"]) == (422, "not-concluded")
    service.brokers.gate.set()
    assert (await running).status == 200


async def test_a_value_that_only_other_tools_write_cannot_be_restored(service: FakeService):
    service.brokers.quotas[ALICE] = {RATE: float("nan")}
    alteration_id = await altered(service, setting(9))
    answer = await revert(service, alteration_id)
    assert (answer.status, answer.document["code"]) == (422, "cannot-be-restored")
    assert service.brokers.quotas[ALICE] == {RATE: 9.0}


async def test_a_repeated_revert_with_the_same_key_is_one_revert(service: FakeService):
    alteration_id = await altered(service, setting(9))
    first = await revert(service, alteration_id, idempotency_key="k")
    second = await revert(service, alteration_id, idempotency_key="k")
    assert (first.status, second.status) == (200, 200)
    assert second.document["alteration_id"] == first.document["alteration_id"]
    assert second.headers["idempotent-replayed"] == "true"
    other = await revert(service, NOBODY, idempotency_key="k")
    assert (other.status, other.document["code"]) == (404, "not-found")


@in_virtual_time
async def test_a_revert_may_supersede_what_holds_its_entity(service: FakeService):
    first = await service.post(ALTERATIONS, setting(9))
    service.brokers.fault = answering(Verdict(Outcome.UNKNOWN), ALICE)
    lost = await service.post(ALTERATIONS, setting(10))
    service.brokers.fault = None
    requested_id = first.document["alteration_id"]
    assert (await revert(service, requested_id)).status == 409
    answer = await revert(service, requested_id, supersede="the last one")
    assert (answer.status, answer.document["code"]) == (400, "bad-supersede")
    answer = await revert(service, requested_id, supersede=lost.document["alteration_id"])
    assert (answer.status, service.brokers.quotas[ALICE]) == (200, {})


async def test_an_impact_that_cannot_be_read_refuses_no_check(service: FakeService):
    body = setting(9, validate_only=True, impact=True)
    for down, reason in ((False, "no-run"), (True, "unavailable")):
        service.analytics.down = down
        answer = await service.post(ALTERATIONS, body)
        assert (answer.status, answer.document["impact"]) == (200, {"reason": reason})
    refused = await service.post(ALTERATIONS, setting(9, impact=True))
    assert refused.document["errors"][0]["code"] == "impact-of-nothing"
