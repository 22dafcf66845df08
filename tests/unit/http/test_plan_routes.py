"""Plans over HTTP, on fakes; every answer fits the OpenAPI document."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Holding
from tests.unit.http.fake_service import ALTERATIONS, Answer, FakeService

PLANS = "/quotas/plans"
ALICE = ClientQuotaEntity.of({"user": "alice"})
STAR = ClientQuotaEntity.of({"user": "*"})
RATE = "producer_byte_rate"


def desired(value: Any, **more: Any) -> dict[str, Any]:
    quotas = [{"entity": {"user": "alice"}, "values": {RATE: value}, **more}]
    return {"apiVersion": "quotas/v1", "quotas": quotas}


async def planned(service: FakeService, value: float, **more: Any) -> str:
    answer = await service.post(PLANS, {"document": desired(value), **more}, "bob")
    assert answer.status == 200
    return str(answer.document["plan_id"])


async def apply(service: FakeService, plan_id: str, body: Any = None, **headers: str) -> Answer:
    return await service.post(f"{PLANS}/{plan_id}/apply", body or {}, **headers)


async def test_a_plan_reaches_no_log_and_changes_nothing(service: FakeService):
    service.brokers.quotas[ALICE] = {RATE: 5.0}
    plan_id = await planned(service, 10)
    assert service.log == []
    read = await service.get(f"{PLANS}/{plan_id}", "bob")
    assert read.document["changes"][0]["impact"] == {
        "summary": f"{RATE} raised × 2.",
        "keys": {
            RATE: {
                "change": "raised",
                "factor": 2,
                "effective_before": 5,
                "effective_after": 10,
                "source": {"entity": {"user": "alice"}, "level": 3, "name": "user"},
                "more_specific": 0,
            }
        },
    }


async def test_a_plan_says_what_was_changed_since_its_owner_applied_it(service: FakeService):
    bert = ClientQuotaEntity.of({"user": "bert"})
    service.brokers.quotas |= {ALICE: {RATE: 1000.0}, bert: {RATE: 7.0}}
    service.plans.held = {
        ALICE: {RATE: Holding("team-a", 8388608.0)},
        bert: {RATE: Holding("team-a", 7.0)},
    }
    quotas = [{"entity": {"user": name}, "values": {RATE: 9}} for name in ("alice", "bert")]
    body = {"document": {"apiVersion": "quotas/v1", "quotas": quotas}, "owner": "team-a"}
    answer = await service.post(PLANS, body, "bob")
    for read in (answer, await service.get(f"{PLANS}/{answer.document['plan_id']}", "bob")):
        changed, same = (change["impact"] for change in read.document["changes"])
        assert changed["keys"][RATE]["changed_since"] == {"owner": "team-a", "value": 8388608}
        assert changed["summary"] == (
            f"{RATE} lowered ÷ 111, changed outside since team-a applied 8 MiB/s."
        )
        assert "changed_since" not in same["keys"][RATE]


async def test_one_plan_more_than_a_principal_may_have_is_refused(service: FakeService):
    service.plans.most = 1
    await planned(service, 10)
    answer = await service.post(PLANS, {"document": desired(11)}, "bob")
    assert (answer.status, answer.document["code"]) == (429, "too-many-plans")
    assert answer.headers["retry-after"] == "600"


async def test_who_names_no_owner_plans_in_the_own_name(service: FakeService):
    read = await service.get(f"{PLANS}/{await planned(service, 10)}")
    assert (read.document["owner"], read.document["author"]) == ("User:bob", "User:bob")


async def test_an_apply_is_checked_behind_a_barrier_and_under_an_intent(service: FakeService):
    answer = await apply(service, await planned(service, 10), {"reason": "INC-1"})
    assert (answer.status, answer.document["outcome"]) == (200, "applied")
    assert service.log == ["record_intent", "quorum", "send", "record_conclusion"]
    (request,) = service.journal.intents
    assert (request.action, request.reason) == ("apply_plan", "INC-1")
    assert request.options["plan"]["owner"] == "User:bob"


async def test_a_plan_is_applied_only_while_what_it_leaves_alone_holds(service: FakeService):
    bert = ClientQuotaEntity.of({"user": "bert"})
    service.brokers.quotas[bert] = {RATE: 5.0}
    quotas = [
        {"entity": {"user": "alice"}, "values": {RATE: 10}},
        {"entity": {"user": "bert"}, "values": {RATE: 5}},
    ]
    document = {"apiVersion": "quotas/v1", "quotas": quotas}
    plan = await service.post(PLANS, {"document": document}, "bob")
    service.brokers.quotas[bert] = {RATE: 6.0}
    answer = await apply(service, plan.document["plan_id"])
    assert (answer.status, answer.document["code"]) == (412, "plan-outdated")
    assert "send" not in service.log
    assert ALICE not in service.brokers.quotas


async def test_an_expired_plan_is_gone(service: FakeService):
    plan_id = await planned(service, 10)
    stored = service.plans.stored[plan_id]
    service.plans.stored[plan_id] = replace(
        stored, expires_at=stored.created_at - timedelta(seconds=1)
    )
    answer = await apply(service, plan_id)
    assert (answer.status, answer.document["code"]) == (410, "plan-expired")
    assert "record_intent" not in service.log


async def test_a_conflict_is_reported_before_anything_is_written(service: FakeService):
    service.brokers.quotas[ALICE] = {RATE: 5.0}
    service.plans.held[ALICE] = {RATE: Holding("other", 5.0)}
    plan_id = await planned(service, 10)
    answer = await apply(service, plan_id)
    assert (answer.status, answer.document["code"]) == (409, "owner-conflict")
    (conflict,) = answer.document["errors"]
    assert conflict["values"] == {"owner": "other", "current": {RATE: 5}}
    assert conflict["detail"] == f"{RATE} of {{user=alice}} is held by other."
    assert "retry-after" not in answer.headers
    assert "record_intent" not in service.log
    assert (await apply(service, plan_id, {"force": True})).status == 200
    taken = service.journal.intents[0].options["plan"]["taken_over"]
    assert taken == {"0": {RATE: "other"}}


async def test_a_plan_that_does_not_exist(service: FakeService):
    for plan_id in ("nonsense", "0192f3c2-5b00-7000-8000-000000000000"):
        for answer in (await apply(service, plan_id), await service.get(f"{PLANS}/{plan_id}")):
            assert (answer.status, answer.document["code"]) == (404, "not-found")


async def test_a_principal_plans_and_alters_as_many_entities_at_a_time_as_one_request_may_have(
    service: FakeService,
):
    quotas = [{"entity": {"user": f"u{number}"}, "values": {RATE: 1}} for number in range(200)]
    document = {"apiVersion": "quotas/v1", "quotas": quotas}
    ops = [{"key": RATE, "value": 1}]
    alterations = [{"entity": quota["entity"], "ops": ops} for quota in quotas]
    with service.services.limits.entities("User:alice", 9_900):
        for path, body in (
            (PLANS, {"document": document}),
            (ALTERATIONS, {"alterations": alterations}),
        ):
            refused = await service.post(path, body)
            assert (refused.status, refused.document["code"]) == (429, "rate-limited")
            assert refused.headers["retry-after"] == "1"
    assert service.count("rate_limited_total", scope="entities") == 2
    assert (await service.post(PLANS, {"document": document}, "bob")).status == 200


async def test_a_plan_warns_of_names_that_kafka_takes_literally(service: FakeService):
    service.brokers.quotas[STAR] = {RATE: 2000.0}
    names: list[dict[str, str | None]] = [
        {"client-id": "tenant-*"},
        {"user": "*"},
        {"user": "User:alice"},
        {"user": "alice"},
        {"user": "<default>"},
    ]
    document = desired(2000)
    document["quotas"] = [{"entity": name, "values": {RATE: 2000}} for name in names]
    document["quotas"][-1]["values"] = {}
    answer = await service.post(PLANS, {"document": document}, "bob")
    assert [(each["entity"], each["code"]) for each in answer.document["warnings"]] == [
        ({"client-id": "tenant-*"}, "literal-pattern"),
        ({"user": "*"}, "literal-default"),
        ({"user": "User:alice"}, "user-prefix"),
    ]
    again = await service.get(f"{PLANS}/{answer.document['plan_id']}", "bob")
    assert again.document["warnings"] == answer.document["warnings"]


async def test_a_plan_without_such_names_has_no_warnings(service: FakeService):
    read = await service.get(f"{PLANS}/{await planned(service, 10_000)}")
    assert read.document["warnings"] == []


async def test_values_are_numbers_or_texts_as_the_command_takes_them(
    service: FakeService, subtests: pytest.Subtests
):
    service.brokers.quotas[ALICE] = {RATE: 5.0}
    for value, after in {
        "4MiB": {RATE: 4 * 2**20},
        "500kB/s": {RATE: 500_000},
        "1.0E7": {RATE: 10_000_000},
        "unlimited": {RATE: 9223372036854775807},
        "unset": {},
    }.items():
        with subtests.test(value=value):
            answer = await service.post(PLANS, {"document": desired(value)}, "bob")
            (change,) = answer.document["changes"]
            assert change["after"] == after


async def test_a_value_that_cannot_be_read_is_named_with_entity_and_key(service: FakeService):
    for value, hint in {"10M": "units of a byte rate", "": "not a number", "nan": ""}.items():
        answer = await service.post(PLANS, {"document": desired(value)}, "bob")
        assert answer.status == 400
        (error,) = answer.document["errors"]
        assert error["code"] == "unreadable-value"
        assert error["pointer"] == f"/document/quotas/0/values/{RATE}"
        assert error["detail"].startswith(f"{{user=alice}} {RATE}={value}: {hint}")


async def test_a_key_of_another_owner_that_is_unset_is_a_conflict(service: FakeService):
    service.brokers.quotas[ALICE] = {RATE: 5.0}
    service.plans.held[ALICE] = {RATE: Holding("other", 5.0)}
    answer = await service.post(PLANS, {"document": desired("unset")}, "bob")
    (conflict,) = answer.document["conflicts"]
    assert (conflict["current"], conflict["proposed"]) == (5, None)
    plan_id = answer.document["plan_id"]
    assert (await apply(service, plan_id, {"force": True})).status == 200
    assert service.brokers.quotas.get(ALICE, {}) == {}


YAML = f"""\
apiVersion: quotas/v1
quotas:
  - entity: {{user: alice}}
    values:
      {RATE}: %s
  - entity: {{user: bob}}
    values: {{{RATE}: 1}}
"""
CSV = f"user,client-id,{RATE}\nalice,,%s\nbob,,1\n"
TEXTS = pytest.mark.parametrize(
    ("text", "document_format", "line"), [(YAML, "yaml", 5), (CSV, "csv", 2)]
)


@TEXTS
async def test_a_document_may_be_text(
    service: FakeService, text: str, document_format: str, line: int
):
    body = {"document": text % "4MiB", "format": document_format}
    answer = await service.post(PLANS, body, "bob")
    assert [change["entity"] for change in answer.document["changes"]] == [
        {"user": "alice"},
        {"user": "bob"},
    ]
    assert answer.document["changes"][0]["after"] == {RATE: 4 * 2**20}


@TEXTS
async def test_a_misspelt_key_of_a_text_ends_with_the_one_that_was_meant(
    service: FakeService, text: str, document_format: str, line: int
):
    body = {"document": text.replace(RATE, RATE[:-1]) % "4MiB", "format": document_format}
    answer = await service.post(PLANS, body, "bob")
    assert {error["detail"][-20:] for error in answer.document["errors"]} == {f" {RATE}?"}


@TEXTS
async def test_a_fault_of_a_text_has_its_line(
    service: FakeService, text: str, document_format: str, line: int
):
    for value, status, code in [
        ("4MX", 400, "unreadable-value"),
        ("0.5", 422, "fraction"),
        ("1e999", 422, "not-finite"),
        ("NaN", 422, "not-finite"),
    ]:
        body = {"document": text % value, "format": document_format}
        answer = await service.post(PLANS, body, "bob")
        assert (answer.status, answer.document["errors"][0]["code"]) == (status, code)
        assert {error["line"] for error in answer.document["errors"]} == {line}
        for error in answer.document["errors"]:
            assert error["pointer"] == f"/document/quotas/0/values/{RATE}"
            assert "{user=alice}" in error["detail"]
            assert RATE in error["detail"]


@pytest.mark.parametrize(
    ("body", "status", "pointer", "line"),
    [
        ({"document": "a: ["}, 400, "/format", None),
        ({"document": desired(1), "format": "yaml"}, 400, "/format", None),
        ({"document": "", "format": "xml"}, 422, "/format", None),
        ({"document": "a: [", "format": "yaml"}, 400, "/document", 2),
        ({"document": "[" * 1_000_000, "format": "yaml"}, 400, "/document", 1),
        ({"document": "a: &a 1\nb: *a", "format": "yaml"}, 400, "/document", 2),
        ({"document": f"user,{RATE}\na,", "format": "csv"}, 200, "", None),
        ({"document": "user\na", "format": "csv"}, 400, "/document", 1),
        (
            {"document": "apiVersion: quotas/v9\nquotas: []", "format": "yaml"},
            422,
            "/document/apiVersion",
            1,
        ),
        (
            {"document": f"user,{RATE}\na,1\na,2", "format": "csv"},
            422,
            "/document/quotas/1/entity",
            3,
        ),
        (
            {
                "document": f"user,{RATE}\n" + "".join(f"{n},\n" for n in range(10_001)),
                "format": "csv",
            },
            422,
            "/document",
            10_002,
        ),
        ({"document": "- 1\n" * 400_001, "format": "yaml"}, 422, "/document", 400_000),
    ],
)
async def test_what_is_no_document_is_refused(
    service: FakeService, body: dict[str, Any], status: int, pointer: str, line: int | None
):
    answer = await service.post(PLANS, body, "bob")
    if pointer:
        (error,) = answer.document["errors"]
        assert (answer.status, error["pointer"], error.get("line")) == (status, pointer, line)
    else:
        assert answer.status == 200


async def test_only_what_a_text_changes_is_judged(service: FakeService):
    odd = {RATE: float("nan"), "request_percentage": 1.7976931348623157e308}
    service.brokers.quotas[ALICE] = dict(odd)
    text = f"user,{RATE},request_percentage\nalice,NaN,1.7976931348623157E308\n"
    answer = await service.post(PLANS, {"document": text, "format": "csv"}, "bob")
    assert (answer.status, answer.document["changes"]) == (200, [])


async def test_one_entity_and_a_document_say_who_owns_what(service: FakeService):
    service.brokers.quotas[ALICE] = {RATE: 5000.0, "consumer_byte_rate": 1.0}
    service.plans.held = {ALICE: {RATE: Holding("team: a", 5000.0)}}
    address = f"/quotas/{ALICE.key}"
    plain, read = await service.get(address), await service.get(f"{address}?owners=true")
    assert "owners" not in plain.document
    assert read.document["owners"] == {RATE: "team: a"}
    assert read.headers["etag"] != plain.headers["etag"]
    texts = {}
    for query in ("owners=true", "max_age_ms=0"):
        exported = await service.get(
            f"/quotas?filter=user=alice&{query}", accept="application/yaml"
        )
        texts[query] = exported.body.decode()
        body = {"document": texts[query], "format": "yaml"}
        assert (await service.post(PLANS, body, "bob")).document["changes"] == []
    comment = f"    # {RATE} applied by team: a\n"
    assert texts["owners=true"] == texts["max_age_ms=0"] + comment
    service.plans.held = {}
    assert "owners" not in (await service.get(f"{address}?owners=true")).document


async def test_quotas_are_found_by_who_owns_a_key_of_theirs(service: FakeService):
    bob, nobodys = (ClientQuotaEntity.of({"user": name}) for name in ("bob", "nobodys"))
    service.brokers.quotas |= {ALICE: {RATE: 5000.0}, bob: {RATE: 6000.0}, nobodys: {RATE: 7000.0}}
    gone = {"consumer_byte_rate": Holding("team-a", 1.0)}
    service.plans.held = {
        ALICE: {RATE: Holding("team-a", 5000.0), **gone},
        bob: {RATE: Holding("team-b", 6000.0)},
    }
    plain = await service.get("/quotas")
    assert [quota for quota in plain.document["quotas"] if "owners" in quota] == []
    found = {
        query: {
            quota["entity"]["user"]: quota.get("owners")
            for quota in (await service.get(f"/quotas?filter=user&{query}")).document["quotas"]
        }
        for query in ("owner=team-a", "owner=team-a&owner=team-b", "owner=x", "owners=true")
    }
    of_alice, of_bob = {"alice": {RATE: "team-a"}}, {"bob": {RATE: "team-b"}}
    assert found == {
        "owner=team-a": of_alice,
        "owner=team-a&owner=team-b": of_alice | of_bob,
        "owner=x": {},
        "owners=true": of_alice | of_bob | {"nobodys": None},
    }
    page = (await service.get("/quotas?owner=team-a&owner=team-b&page_size=1")).document
    assert (page["total"], page["quotas"][0]["owners"]) == (2, {RATE: "team-a"})
    tags = set()
    for owner in ("team-a", "team-c"):
        service.plans.held[ALICE] = {RATE: Holding(owner, 5000.0)}
        tags.add((await service.get("/quotas?owners=true")).headers["etag"])
    assert len(tags) == 2
    token = page["next_page_token"]
    refused = await service.get(f"/quotas?owner=team-b&page_size=1&page_token={token}")
    assert (refused.status, refused.document["code"]) == (400, "bad-page-token")
