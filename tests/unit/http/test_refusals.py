"""Bodies that cannot be read or break a rule: refused with each pointer, before any look-up."""

import copy
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.unit.http.fake_service import ALTERATIONS, Answer, FakeService, document, refused, send

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
M, I = "controller_mutation_rate", "connection_creation_rate"  # noqa: E741
KAFKA = "INVALID_REQUEST"
RESOLVE, PLANS = "/quotas/resolve", "/quotas/plans"
SET = {"key": P, "value": 1}
JSON = [(b"content-type", b"application/json")]

Json = dict[str, Any]


BEYOND_A_SCHEMA = {
    *("not-json", "duplicate-entity", "lone-surrogate", "name-too-long"),
    *("fraction", "not-an-ip-address"),  # tests by examples compare these
}


@cache
def request_schema(path: str) -> Draft202012Validator:
    """Return what the document says of a body."""
    content = document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return Draft202012Validator({**content["schema"], "components": document()["components"]})


async def post(service: FakeService, path: str, body: Any, principal: str = "alice") -> Answer:
    """Post text as it is, anything else as JSON; the document must refuse it, too."""
    text = body if isinstance(body, str) else json.dumps(body)
    headers = [*JSON, (b"authorization", f"Bearer {principal}".encode())]
    answer = await send(service.app, "POST", path, headers=headers, body=[text.encode()])
    service.check("POST", path, answer)
    codes = {error["code"] for error in answer.document["errors"]}
    if path in {ALTERATIONS, RESOLVE} and len(text) < 4_000 and not codes & BEYOND_A_SCHEMA:
        assert not request_schema(path).is_valid(json.loads(text)), text
    return answer


def single(entity: Any, *ops: Any, **more: Any) -> Json:
    return {"alterations": [{"entity": entity, "ops": list(ops)}], **more}


def inside(violations: str) -> str:
    """Return violations with pointers that begin at the only alteration."""
    return ", ".join(f"/alterations/0/{item}" for item in violations.split(", "))


NO_ADDRESSES = ("localhost", "10.0.0.0/8", "010.0.0.1", "fe80::1%eth0", "1.2.3.4\n", "\u0661.2.3.4")

ENTITIES: list[tuple[Json, str, str | None]] = [
    ({}, "entity empty-entity", KAFKA),
    ({"user": ""}, "entity/user empty-name", KAFKA),
    ({"user": "bad", "client-id": ""}, "entity/client-id empty-name", KAFKA),
    ({"group": "bad"}, "entity/group unknown-entity-type", KAFKA),
    ({"User": "bad"}, "entity/User unknown-entity-type", KAFKA),
    ({"client_id": "bad"}, "entity/client_id unknown-entity-type", KAFKA),
    ({"": "bad"}, "entity/ unknown-entity-type", KAFKA),
    ({"a/b~c": None}, "entity/a~1b~0c unknown-entity-type", KAFKA),
    ({"user": "bad", "team": "bad"}, "entity/team unknown-entity-type", KAFKA),
    ({"user": "a\0b"}, "entity/user nul-in-name", None),
    ({"client-id": "\0"}, "entity/client-id nul-in-name", None),
    ({"user": "x" * 513}, "entity/user name-too-long", None),
    ({"user": "é" * 257}, "entity/user name-too-long", None),
    ({"client-id": "😀" * 129}, "entity/client-id name-too-long", None),
    ({"user": "x" * 32767}, "entity/user name-too-long", None),
    ({"user": "x" * 32768}, "entity/user name-too-long", None),
    (
        {"user": "", "client-id": "a\0" + "x" * 512, "team": "t"},
        (
            "entity/user empty-name, entity/client-id nul-in-name, "
            "entity/client-id name-too-long, entity/team unknown-entity-type"
        ),
        KAFKA,
    ),
    ({"user": "\ud800"}, "entity/user lone-surrogate", None),
    ({"client-id": "a\udc00b"}, "entity/client-id lone-surrogate", None),
    ({"user": "\udc00\ud800"}, "entity/user lone-surrogate", None),
    *(
        ({"ip": "192.0.2.1", **other}, "entity invalid-entity-combination", KAFKA)
        for other in ({"user": "bad"}, {"user": None}, {"client-id": "bad"}, {"client-id": None})
    ),
    *(({"ip": name}, "entity/ip not-an-ip-address", KAFKA) for name in NO_ADDRESSES),
]


async def test_an_entity_that_cannot_be_is_refused(service: FakeService, subtests: pytest.Subtests):
    for entity, violations, kafka_error in ENTITIES:
        with subtests.test(entity=entity):
            body = single(entity, {"key": I if "ip" in entity else P, "value": 10})
            problem = refused(
                service, await post(service, ALTERATIONS, body), 422, inside(violations)
            )
            assert problem["kafka_error"] == kafka_error


async def test_half_of_a_surrogate_pair_as_a_type_or_a_key_survives_the_answer(
    service: FakeService,
):
    body = single({"\ud800": "bad"}, {"key": "\udc00", "value": 1})
    answer = await post(service, ALTERATIONS, body)
    expected = inside("entity/\ud800 unknown-entity-type, ops/0/key unknown-key")
    refused(service, answer, 422, expected)
    assert rb"\ud800" in answer.body


KEYS: list[tuple[Json, str, str]] = [
    *(({"user": "bad"}, key, "unknown-key") for key in ("producer_bytes_rate", "", P.title())),
    *(({"user": "bad"}, f"SCRAM-SHA-{bits}", "unknown-key") for bits in (256, 512)),
    ({"user": None}, "log.retention.ms", "unknown-key"),
    ({"user": "bad"}, "x" * 32768, "unknown-key"),
    ({"user": "bad"}, I, "key-not-allowed"),
    ({"user": None, "client-id": "bad"}, I, "key-not-allowed"),
    ({"ip": "192.0.2.1"}, P, "key-not-allowed"),
    ({"ip": None}, P, "key-not-allowed"),
]


async def test_a_key_that_the_entity_cannot_carry_is_refused(
    service: FakeService, subtests: pytest.Subtests
):
    for entity, key, code in KEYS:
        with subtests.test(entity=entity, key=key[:50]):
            answer = await post(service, ALTERATIONS, single(entity, {"key": key, "value": 1024}))
            problem = refused(service, answer, 422, inside(f"ops/0/key {code}"))
            assert (problem["kafka_error"], len(problem["detail"]) < 1000) == (KAFKA, True)
            body = single(entity, {"key": key, "remove": True})
            answer = await post(service, ALTERATIONS, body)
            problem = answer.document
            assert (answer.status, problem["kafka_error"]) == (422, None)
            assert [error["code"] for error in problem["errors"]] == [code]
            assert not {"record_intent", "send"} & set(service.log)
            service.log.clear()


OPERATIONS: list[tuple[list[Json], str, str | None]] = [
    ([], "ops no-ops", None),
    ([{"key": P}], "ops/0 value-or-remove-missing", None),
    ([{"key": P, "remove": False}], "ops/0 value-or-remove-missing", None),
    ([{"key": P, "value": 1, "remove": True}], "ops/0 value-with-remove", None),
    (
        [SET, {"key": C, "value": 1}, SET],
        "ops/0/key duplicate-key, ops/2/key duplicate-key",
        KAFKA,
    ),
    (
        [SET, {"key": P, "remove": True}],
        "ops/0/key duplicate-key, ops/1/key duplicate-key",
        KAFKA,
    ),
    ([SET, {"key": "consumer_byte_rte", "value": 1}], "ops/1/key unknown-key", KAFKA),
    ([{"key": "no.key", "value": 0}], "ops/0/key unknown-key, ops/0/value not-positive", KAFKA),
]


async def test_operations_that_break_a_rule_are_refused(
    service: FakeService, subtests: pytest.Subtests
):
    for ops, violations, kafka_error in OPERATIONS:
        for validate_only in (False, True):
            with subtests.test(ops=ops, validate_only=validate_only):
                body = single({"user": "bad"}, *ops, validate_only=validate_only)
                answer = await post(service, ALTERATIONS, body)
                problem = refused(service, answer, 422, inside(violations))
                assert problem["kafka_error"] == kafka_error


DUPLICATES: list[tuple[list[Json], set[int]]] = [
    ([{"user": "bad"}, {"user": "bad"}], {1}),
    ([{"user": "bad", "client-id": "c"}, {"client-id": "c", "user": "bad"}], {1}),
    ([{"user": None}, {"user": None}], {1}),
    ([{"user": "bad"}, {"user": "good"}, {"user": "bad"}, {"user": "bad"}], {2, 3}),
    ([{"ip": "::1"}, {"ip": "0:0:0:0:0:0:0:1"}], {1}),
    ([{"ip": "192.0.2.1"}, {"ip": "::ffff:192.0.2.1"}], {1}),
]


async def test_the_same_entity_twice_refuses_the_whole_request(
    service: FakeService, subtests: pytest.Subtests
):
    for entities, later in DUPLICATES:
        for all_or_nothing in (True, False):
            with subtests.test(entities=entities, all_or_nothing=all_or_nothing):
                ops = [{"key": I if "ip" in entities[0] else P, "value": 10}]
                listed = [{"entity": entity, "ops": ops} for entity in entities]
                body = {"alterations": listed, "all_or_nothing": all_or_nothing}
                expected = ", ".join(f"/alterations/{at}/entity duplicate-entity" for at in later)
                refused(service, await post(service, ALTERATIONS, body), 422, expected)


async def test_a_request_without_alterations_is_no_success(service: FakeService):
    for body in ({}, {"alterations": []}, {"alterations": [], "reason": "x"}):
        for all_or_nothing in (True, False):
            whole = {**body, "all_or_nothing": all_or_nothing}
            answer = await post(service, ALTERATIONS, whole)
            problem = refused(service, answer, 422, "/alterations no-alterations")
            assert problem["code"] == "no-alterations"


TINY, HUGE, DIGITS = "5e-324", "1e999", "9" * 5000

NUMBERS: list[tuple[str, str, str, str | None]] = [
    *((key, zero, "not-positive", KAFKA) for key, zero in ((P, "0"), (C, "0.0"), (R, "-0.0"))),
    (M, "-0", "not-positive", KAFKA),
    (P, "-1", "not-positive", KAFKA),
    (R, "-0.5", "not-positive", KAFKA),
    (R, "1e-999", "below-minimum", None),
    (P, TINY, "fraction below-minimum", None),
    (R, TINY, "below-minimum", None),
    (P, "1e-9", "fraction below-minimum", None),
    (C, "0.5", "fraction below-minimum", KAFKA),
    (C, "1.5", "fraction", KAFKA),
    (P, "1.0000001", "fraction", None),
    (P, f"1.{'0' * 39}1", "fraction", None),
    (P, "9007199254740993", "not-exact", None),
    (R, "9007199254740993", "above-maximum", None),
    (P, "9223372036854775806", "not-exact", None),
    (P, "9223372036854775809", "above-maximum", KAFKA),
    (C, "9223372036854777856", "above-maximum", KAFKA),
    (C, "18446744073709551616", "above-maximum", KAFKA),
    (C, "36893488147419103232.4", "fraction above-maximum", KAFKA),
    (P, HUGE, "not-finite", KAFKA),
    (R, HUGE, "not-finite", None),
    (M, f"-{HUGE}", "not-positive", KAFKA),
    (P, f"1e{'9' * 400}", "not-finite", KAFKA),
    (P, DIGITS, "not-finite", KAFKA),
    (R, f"0.{'0' * 4999}1", "below-minimum", None),
    (R, "0.0001", "below-minimum", None),
    (R, "0.00999", "below-minimum", None),
    (M, "0.00999", "below-minimum", None),
    (R, "1000000000.1", "above-maximum", None),
    (M, "1000000001", "above-maximum", None),
    (I, "0", "not-positive", KAFKA),
    (I, "0.5", "fraction below-minimum", KAFKA),
    (I, "1e-9", "fraction below-minimum", None),
    (I, "1.0000001", "fraction", None),
    (I, "2147483648", "above-maximum", KAFKA),
    (I, "2147483647.5", "fraction above-maximum", KAFKA),
    (I, "9223372036854775807", "above-maximum", KAFKA),
]
"""A key, a number as JSON, the codes of the rules that it breaks, and what a broker calls it."""


def with_number(number: str, key: str = P) -> str:
    entity = {"ip": None} if key == I else {"user": "bad"}
    body = {"identities": [{"user": "bad"}], **single(entity, {"key": key, "value": "N"})}
    return json.dumps(body).replace('"N"', number)


async def test_a_number_that_is_no_quota_is_refused_by_an_alteration_and_a_what_if(
    service: FakeService, subtests: pytest.Subtests
):
    for key, number, codes, kafka_error in NUMBERS:
        with subtests.test(key=key, number=number[:50]):
            expected = inside(", ".join(f"ops/0/value {code}" for code in codes.split()))
            what_if = with_number(number, key)
            altering = what_if.replace('"identities": [{"user": "bad"}], ', "")
            for path, body in ((ALTERATIONS, altering), (RESOLVE, what_if)):
                problem = refused(service, await post(service, path, body), 422, expected)
                assert problem["kafka_error"] == kafka_error


async def test_every_bad_number_of_a_request_is_listed_beside_the_options(service: FakeService):
    numbers = {P: 0, C: 1.5, R: 1e12, M: -3}
    codes = ("not-positive", "fraction", "above-maximum", "not-positive")
    ops = [{"key": key, "value": value} for key, value in numbers.items()]
    listed = [{"entity": {"user": user}, "ops": ops} for user in ("bad", "worse")]
    answer = await post(service, ALTERATIONS, {"alterations": listed, "wait_ms": -1})
    expected = [
        f"/alterations/{at}/ops/{position}/value {code}"
        for at in range(2)
        for position, code in enumerate(codes)
    ]
    refused(service, answer, 422, ", ".join([*expected, "/wait_ms out-of-range"]))


async def test_a_number_that_json_lacks_cannot_be_read(service: FakeService):
    for literal in ("NaN", "Infinity", "-Infinity"):
        answer = await post(service, ALTERATIONS, with_number(literal))
        refused(service, answer, 400, inside("ops/0/value not-json"))
        text = single({"user": "bad"}, {"key": R, "value": literal})
        refused(
            service, await post(service, ALTERATIONS, text), 400, inside("ops/0/value wrong-type")
        )


TYPES: Mapping[str, Any] = {
    "object": {"a": {}},
    "list": ["x"],
    "text": "x",
    "number": 4711,
    "flag": True,
    "null": None,
}

PLAN = {"apiVersion": "quotas/v1", "quotas": [{"entity": {"user": "a"}, "values": {P: 1}}]}
BODIES: Mapping[str, Json] = {
    ALTERATIONS: {"alterations": [{"entity": {"user": "bad"}, "ops": [SET], "expected": {}}]},
    f"{ALTERATIONS}/0/revert": {},
    RESOLVE: {"identities": [{"user": "a"}, {"ip": "::1"}]},
    PLANS: {"document": PLAN},
    f"{PLANS}/0/apply": {},
}
MEMBERS: Mapping[str, Mapping[str, str]] = {
    ALTERATIONS: {
        **dict.fromkeys(
            ("/validate_only", "/all_or_nothing", "/alterations/0/ops/0/remove"), "flag"
        ),
        **dict.fromkeys(("/wait", "/alterations/0/ops/0/key"), "text"),
        **dict.fromkeys(("/wait_ms", "/alterations/0/ops/0/value"), "number"),
        **dict.fromkeys(("/reason", "/alterations/0/entity/user"), "text null"),
        **dict.fromkeys(("/alterations", "/alterations/0/ops"), "list"),
        **dict.fromkeys(("/alterations/0", "/alterations/0/entity"), "object"),
        **dict.fromkeys(("/alterations/0/ops/0", "/alterations/0/expected"), "object"),
        "/alterations/0/expected/k": "number null",
    },
    f"{ALTERATIONS}/0/revert": {"/validate_only": "flag", "/reason": "text null"},
    RESOLVE: {
        "/identities": "list",
        "/identities/0": "object",
        **dict.fromkeys(("/identities/0/user", "/identities/1/ip"), "text"),
    },
    PLANS: {
        "/document": "object text",
        "/document/quotas": "list",
        f"/document/quotas/0/values/{P}": "number text",
        "/scope": "list",
        "/owner": "text null",
        "/prune": "flag",
    },
    f"{PLANS}/0/apply": {"/force": "flag"},
}
"""By route and pointer: the types that a member may have."""


def with_member(body: Json, pointer: str, value: Any) -> Json:
    """Return the body with another value there."""
    whole = copy.deepcopy(body)
    *above, last = [int(step) if step.isdigit() else step for step in pointer.split("/")[1:]]
    target: Any = whole
    for step in above:
        target = target[step]
    target[last] = value
    return whole


async def test_a_member_of_another_type_cannot_be_read(
    service: FakeService, subtests: pytest.Subtests
):
    for path, members in MEMBERS.items():
        for pointer, kinds in members.items():
            for kind in TYPES.keys() - kinds.split():
                with subtests.test(path=path, pointer=pointer, kind=kind):
                    body = with_member(BODIES[path], pointer, TYPES[kind])
                    answer = await post(service, path, body)
                    refused(service, answer, 400, f"{pointer} wrong-type")


UNREADABLE: list[tuple[str, Json, str]] = [
    (ALTERATIONS, single({"user": "bad"}, {"key": P, "valu": 1}), "/alterations/0/ops/0/valu"),
    (ALTERATIONS, single({"user": "bad"}, {"key": P, "Value": 1}), "/alterations/0/ops/0/Value"),
    (ALTERATIONS, single({"user": "bad"}, SET, validateOnly=True), "/validateOnly"),
    (ALTERATIONS, {"alterations": [{"entity": {}, "ops": [], "quota": 1}]}, "/alterations/0/quota"),
    (ALTERATIONS, {"a/b~": 0}, "/a~1b~0"),
    (f"{ALTERATIONS}/0/revert", {"all_or_nothing": True}, "/all_or_nothing"),
    (RESOLVE, {"identities": [{"user": "a", "client_id": "b"}]}, "/identities/0/client_id"),
    (PLANS, {"document": PLAN, "owners": "x"}, "/owners"),
    (PLANS, {"document": {**PLAN, "kind": "Quotas"}}, "/document/kind"),
    (PLANS, with_member(BODIES[PLANS], "/document/quotas/0/x", 1), "/document/quotas/0/x"),
    (f"{PLANS}/0/apply", {"validate_only": True}, "/validate_only"),
]
MISSING: list[tuple[str, Json, str]] = [
    (ALTERATIONS, {"alterations": [{"ops": []}]}, "/alterations/0/entity"),
    (ALTERATIONS, {"alterations": [{"entity": {"user": "bad"}}]}, "/alterations/0/ops"),
    (ALTERATIONS, single({"user": "bad"}, {"value": 1}), "/alterations/0/ops/0/key"),
    (RESOLVE, {}, "/identities"),
    (PLANS, {}, "/document"),
    (PLANS, {"document": {"quotas": []}}, "/document/apiVersion"),
    (PLANS, {"document": {"apiVersion": "quotas/v1"}}, "/document/quotas"),
]


async def test_an_unknown_or_missing_member_cannot_be_read(
    service: FakeService, subtests: pytest.Subtests
):
    for code, cases in (("unknown-field", UNREADABLE), ("missing-field", MISSING)):
        for path, body, pointer in cases:
            with subtests.test(path=path, pointer=pointer):
                problem = refused(
                    service, await post(service, path, body), 400, f"{pointer} {code}"
                )
                assert (problem["code"], problem["kafka_error"]) == ("unreadable-request", None)


TOO_MANY = ["nonsense"] * 10_001
"""A list that is too long is refused before any item is looked at."""

TOO_MANY_OPS = {"entity": {"user": "a"}, "ops": [{"key": P, "remove": True}] * 5_001}
TOO_MANY_CHANGES = "/alterations too-many-changes"

BROKEN: list[tuple[str, Json, str]] = [
    *((ALTERATIONS, {"wait": word}, "/wait unknown-word") for word in ("forever", "Readable", "")),
    *(
        (ALTERATIONS, {"wait_ms": number}, "/wait_ms out-of-range")
        for number in (-1, 60001, 0.5, 1e-99, 10**30)
    ),
    (ALTERATIONS, {"reason": "x" * 1001}, "/reason reason-too-long"),
    (ALTERATIONS, {"reason": "a\0b"}, "/reason nul-in-reason"),
    (ALTERATIONS, {"reason": "a\ud800"}, "/reason lone-surrogate"),
    (f"{ALTERATIONS}/0/revert", {"reason": "x" * 1001}, "/reason reason-too-long"),
    (f"{PLANS}/0/apply", {"wait": "soon"}, "/wait unknown-word"),
    (RESOLVE, {"identities": [{}]}, "/identities/0/user identity-without-user"),
    (RESOLVE, {"identities": [{"client-id": "b"}]}, "/identities/0/user identity-without-user"),
    *(
        (RESOLVE, {"identities": [{"ip": "192.0.2.1", **more}]}, violation)
        for violation in ("/identities/0 invalid-identity-combination",)
        for more in ({"user": "a"}, {"client-id": ""})
    ),
    *(
        (RESOLVE, {"identities": [{"ip": name}]}, "/identities/0/ip not-an-ip-address")
        for name in ("host", "")
    ),
    (
        RESOLVE,
        {"identities": [{"user": "\ud800", "client-id": "\udfff"}]},
        "/identities/0/user lone-surrogate, /identities/0/client-id lone-surrogate",
    ),
    *((path, {"alterations": TOO_MANY}, TOO_MANY_CHANGES) for path in (ALTERATIONS, RESOLVE)),
    (ALTERATIONS, {"alterations": [TOO_MANY_OPS] * 10}, TOO_MANY_CHANGES),
    (PLANS, {"document": {**PLAN, "quotas": TOO_MANY}}, "/document/quotas too-many-changes"),
    (
        RESOLVE,
        {"identities": [*[{"user": "a"}] * 10_000, "nonsense"]},
        "/identities too-many-identities",
    ),
    (RESOLVE, {"max_age_ms": -1}, "/max_age_ms out-of-range"),
    (
        PLANS,
        {"document": {**PLAN, "apiVersion": "quotas/v2"}},
        "/document/apiVersion unknown-api-version",
    ),
    *((PLANS, {"owner": word}, "/owner bad-owner") for word in ("", " ", "x" * 129, "a\nb")),
    (PLANS, {"scope": ["group=a"]}, "/scope/0 unknown-entity-type"),
    (
        PLANS,
        with_member(BODIES[PLANS], "/document/quotas/0/entity_key", "e30"),
        "/document/quotas/0/entity_key other-entity-key",
    ),
    (
        PLANS,
        with_member(BODIES[PLANS], f"/document/quotas/0/values/{P}", 1.5),
        f"/document/quotas/0/values/{P} fraction",
    ),
]
"""A route, members beside those of its good body, and the rules that they break."""


async def test_a_member_that_breaks_a_rule_is_refused(
    service: FakeService, subtests: pytest.Subtests
):
    for path, members, violations in BROKEN:
        with subtests.test(path=path, violations=violations):
            answer = await post(service, path, {**BODIES[path], **members})
            refused(service, answer, 422, violations)
            assert service.plans.stored == {}


async def test_each_of_ten_thousand_changed_keys_is_judged(service: FakeService):
    ops = [{"key": P, "value": 0}, {"key": C, "value": 1}]
    listed = [{"entity": {"user": f"bad-{number}"}, "ops": ops} for number in range(5_000)]
    expected = [f"/alterations/{number}/ops/0/value not-positive" for number in range(1_000)]
    for all_or_nothing in (True, False):
        body = {"alterations": listed, "all_or_nothing": all_or_nothing}
        answer = await post(service, ALTERATIONS, body)
        problem = refused(service, answer, 422, ", ".join([*expected, "more"]))
        assert problem["errors"][-1]["detail"] == "At least 4000 more are not listed."
