"""The policy before alterations: refused as a whole, recorded, and before anything is looked up."""

import logging
from pathlib import Path
from typing import Any

import pytest

from app.domain.callbacks.callback import CallbackModel
from app.domain.callbacks.strimzi_static import StrimziStatic
from app.policy_file import read_policy
from app.service.auth.authorize import NarrowingPolicy
from tests.unit.http.fake_service import ALTERATIONS, FakeService, setting

TEXT = """\
apiVersion: quotas-policy/v1
rules:
  - name: team-a
    principals: ["User:alice"]
    entities: ["user^=team-a-"]
    keys:
      producer_byte_rate: {min: 10, max: 100, remove: true}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    put(path, TEXT)
    return path


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


async def ignoring() -> CallbackModel:
    """Decide as brokers whose callback ignores whatever is stored."""
    return StrimziStatic({}, frozenset())


class Narrowed(FakeService):
    """A service with the policy; the first attempt is recorded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        denials = self.services.denials
        self.guard = NarrowingPolicy(
            lambda: read_policy(path),
            read_policy(path),
            denials.record,
            self.counted.policy,
            ignoring,
        )
        self.policy = self.guard
        self.services = self._services()


@pytest.fixture
def service(path: Path) -> Narrowed:
    return Narrowed(path)


def two(good: float, bad: float) -> dict[str, Any]:
    first, second = setting(good, "team-a-x"), setting(bad, "team-a-y")
    return {"alterations": first["alterations"] + second["alterations"]}


async def test_what_a_rule_covers_passes(service: Narrowed):
    answer = await service.post(ALTERATIONS, setting(50, "team-a-x"))
    assert answer.status == 200
    assert service.count("policy_decisions_total", result="allowed") == 1
    (request,) = service.journal.intents
    assert request.evidence["policy"]["rules"] == ["team-a"]
    assert len(request.evidence["policy"]["sha256"]) == 64


@pytest.mark.parametrize("more", [{}, {"validate_only": True}, {"all_or_nothing": False}])
async def test_an_entity_that_is_not_covered_refuses_the_whole_request(
    service: Narrowed, more: dict
):
    answer = await service.post(ALTERATIONS, {**two(50, 500), **more})
    assert answer.status == 403
    problem = answer.document
    assert (problem["code"], problem["kafka_error"]) == ("policy-violation", None)
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
    assert [error["pointer"] for error in problem["errors"]] == ["/alterations/1/ops/0/value"]
    assert service.log == ["record_final"]
    assert service.count("policy_decisions_total", result="refused") == 1


async def test_the_attempt_is_recorded_with_what_was_asked_for(service: Narrowed):
    await service.post(ALTERATIONS, {**two(50, 500), "reason": "backfill"})
    ((request, _),) = service.journal.finals
    assert (request.action, request.reason) == ("denied", "backfill")
    assert request.evidence["code"] == "policy-violation"
    assert request.evidence["policy"]["rules"] == ["team-a"]
    users = [{"user": "team-a-x"}, {"user": "team-a-y"}]
    assert request.evidence["denied"] == {"entities": 2, "first": users, "attempts": 1}


async def test_what_the_brokers_callback_ignores_is_applied_with_a_warning(service: Narrowed):
    service.services.alter.model = ignoring
    answer = await service.post(ALTERATIONS, setting(50, "team-a-x"))
    assert answer.status == 200
    (result,) = answer.document["results"]
    (warning,) = [each for each in result["warnings"] if not each.startswith("drastic: ")]
    assert warning.startswith("ignored-by-callback: ")
    assert "producer_byte_rate" in warning


async def test_the_policy_may_refuse_to_set_what_the_brokers_callback_ignores(
    service: Narrowed, path: Path
):
    put(path, TEXT.replace("rules:", "ignored_by_callback: deny\nrules:"))
    await service.guard.reload()
    answer = await service.post(ALTERATIONS, setting(50, "team-a-x"))
    assert (answer.status, answer.document["code"]) == (403, "policy-violation")
    (error,) = answer.document["errors"]
    assert (error["code"], error["pointer"]) == ("ignored-by-callback", "/alterations/0/ops/0/key")
    entity = {"user": "team-a-x"}
    removal = {"entity": entity, "ops": [{"key": "producer_byte_rate", "remove": True}]}
    assert (await service.post(ALTERATIONS, {"alterations": [removal]})).status == 200


async def test_callers_see_the_rules_that_bound_them(service: Narrowed, path: Path):
    me = await service.send("GET", "/me")
    limits = {"producer_byte_rate": {"min": 10, "max": 100, "remove": True}}
    rule = {"name": "team-a", "entities": [["user^=team-a-"]], "keys": limits, "defaults": False}
    assert me.document["policy"] == [rule]
    other = await service.send("GET", "/me", principal="bert")
    assert (other.document["policy"], other.document["permissions"]["alter"]) == ([], True)
    put(path, TEXT.replace("rules:", "others: allow\nrules:"))
    await service.guard.reload()
    assert (await service.send("GET", "/me", principal="bert")).document["policy"] is None


async def test_a_denied_attempt_is_one_record_however_many_entities_it_has(service: Narrowed):
    alterations = [setting(50, f"other-{number}")["alterations"][0] for number in range(3_000)]
    answer = await service.post(ALTERATIONS, {"alterations": alterations})
    assert answer.status == 403
    ((request, _),) = service.journal.finals
    assert request.changes == ()
    assert request.evidence["denied"]["entities"] == 3_000
    assert len(request.evidence["denied"]["first"]) == 20


async def test_the_acls_come_first_and_rules_come_last(service: Narrowed):
    denied = await service.post(ALTERATIONS, setting(500, "x"), "bob")
    assert denied.document["code"] == "cluster-authorization-failed"
    assert "User:bob at 127.0.0.1 lacks ALTER_CONFIGS" in denied.document["detail"]
    broken = await service.post(ALTERATIONS, setting(50.5, "team-a-x"))
    assert broken.status == 422
    empty = await service.post(ALTERATIONS, {"alterations": []})
    assert empty.document["code"] == "no-alterations"


async def test_taking_back_is_judged_as_an_alteration(service: Narrowed, path: Path):
    made = await service.post(ALTERATIONS, setting(50, "team-a-x"))
    put(path, TEXT.replace("remove: true", "remove: false"))
    assert await service.guard.reload()
    address = f"{ALTERATIONS}/{made.document['alteration_id']}/revert"
    answer = await service.post(address, {})
    assert answer.status == 403
    assert answer.document["errors"][0]["code"] == "removal-not-covered"


async def test_a_repeat_is_judged_by_the_policy_of_today(service: Narrowed, path: Path):
    body = setting(50, "team-a-x")
    assert (await service.post(ALTERATIONS, body, Idempotency_Key="k")).status == 200
    put(path, TEXT.replace("max: 100", "max: 40"))
    assert await service.guard.reload()
    assert (await service.post(ALTERATIONS, body, Idempotency_Key="k")).status == 403


async def test_a_repeated_apply_is_judged_by_the_policy_of_today(service: Narrowed, path: Path):
    quotas = [{"entity": {"user": "team-a-x"}, "values": {"producer_byte_rate": 50}}]
    document = {"apiVersion": "quotas/v1", "quotas": quotas}
    made = await service.post("/quotas/plans", {"document": document})
    address = f"/quotas/plans/{made.document['plan_id']}/apply"
    assert (await service.post(address, {}, Idempotency_Key="k")).status == 200
    put(path, TEXT.replace("max: 100", "max: 40"))
    assert await service.guard.reload()
    assert (await service.post(address, {}, Idempotency_Key="k")).status == 403


async def test_a_bad_file_leaves_the_policy_in_force(
    service: Narrowed, path: Path, caplog: pytest.LogCaptureFixture
):
    put(path, "rules: [")
    with caplog.at_level(logging.ERROR):
        assert not await service.guard.reload()
    assert "line 1: not YAML" in caplog.text
    assert service.count("policy_outdated") == 1
    assert service.count("policy_rules") == 1
    assert service.count("policy_reads_total", result="refused") == 1
    assert (await service.post(ALTERATIONS, setting(50, "team-a-x"))).status == 200
    assert (await service.post(ALTERATIONS, setting(500, "team-a-x"))).status == 403
    put(path, f"others: allow\n{TEXT}")
    assert await service.guard.reload()
    assert service.count("policy_outdated") == 0


LOOSE = TEXT.replace("min: 10, max: 100", "min: 10, max: 100000000")


async def refusals(service: Narrowed, *alterations: Any, **options: Any) -> list[tuple[str, str]]:
    """Alter, and return code and pointer of each error of a refusal; empty where all is applied."""
    answer = await service.post(ALTERATIONS, {"alterations": list(alterations), **options})
    if answer.status == 200:
        return []
    assert (answer.status, answer.document["code"]) == (403, "policy-violation"), answer.document
    assert answer.document["sent_to_cluster"] == "no"
    return [(error["code"], error["pointer"]) for error in answer.document["errors"]]


async def test_the_policy_may_refuse_drastic_changes_by_what_holds_then(
    service: Narrowed, path: Path
):
    put(path, LOOSE)
    await service.guard.reload()
    (high,) = setting(50_000_000, "team-a-x")["alterations"]
    (low,) = setting(500_000, "team-a-x")["alterations"]
    (half,) = setting(5_000_000, "team-a-x")["alterations"]
    (tiny,) = setting(100, "team-a-y")["alterations"]
    assert await refusals(service, high) == []
    assert await refusals(service, low) == []
    assert await refusals(service, high) == []
    put(path, LOOSE.replace("rules:", "drastic: deny\nrules:"))
    await service.guard.reload()
    refused = [("drastic", f"/alterations/{at}/ops/0/value") for at in (0, 1)]
    assert await refusals(service, low, tiny) == refused
    assert await refusals(service, low, tiny, all_or_nothing=False) == refused
    assert await refusals(service, low, tiny, validate_only=True) == refused
    assert await refusals(service, half) == []
    assert await refusals(service, low) == []


async def test_what_is_too_drastic_is_a_refused_row_and_its_key_is_free_again(
    service: Narrowed, path: Path
):
    put(path, LOOSE.replace("rules:", "drastic: deny\nrules:"))
    await service.guard.reload()
    first = await service.post(ALTERATIONS, setting(100, "team-a-x"), idempotency_key="lower")
    assert first.status == 403
    (concluded,) = service.journal.conclusions
    assert [str(result.outcome) for result in concluded.results.values()] == ["refused"]
    again = await service.post(ALTERATIONS, setting(100, "team-a-x"), idempotency_key="lower")
    assert again.status == 403
    assert again.document["alteration_id"] != first.document["alteration_id"]
