"""The OpenAPI document: complete, its examples true, its schemas as strict as the readers.

What test_refusals.py sends is held against them, too.
"""

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from app.domain.addresses import canonical_ip
from app.domain.entities import ClientQuotaFilter
from app.domain.errors import InvalidRequestError, UnknownOutcomeError, UnreadableRequestError
from app.domain.validation import filter_violations, judge
from app.http.alterations.models import AlterationRequest
from app.http.models import IP_SCHEMA
from app.http.problem_catalog import PROBLEMS
from app.http.problems import problem_document
from app.http.query_params import COMPONENT_SCHEMA, parse_component
from app.http.resolve.routes import ResolveRequest
from app.http.validation import parse_object, validated
from tests.unit.http.fake_service import document, resolved

EVERY_SCHEME = [{"bearer": []}, {"basic": []}, {"certificate": []}]

PUBLIC = {
    "GET /",
    "GET /livez",
    "GET /readyz",
    "GET /metrics",
    "GET /version",
    "GET /problems/",
    "GET /problems/{code}",
}


DOCUMENT = document()
DESCRIBED = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def dictionaries(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from dictionaries(child)


def references(node: Any) -> Iterator[str]:
    return (
        dictionary["$ref"]
        for dictionary in dictionaries(node)
        if isinstance(dictionary.get("$ref"), str)
    )


def examples() -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the schema and the value of every example outside the components' own."""
    for dictionary in dictionaries(DOCUMENT):
        if isinstance(dictionary.get("schema"), dict):
            named_examples = {
                name: resolved(each)["value"]
                for name, each in dictionary.get("examples", {}).items()
            }
            if "example" in dictionary:
                named_examples[str(dictionary.get("name", dictionary.get("description")))] = (
                    dictionary["example"]
                )
            for name, value in named_examples.items():
                yield name, dictionary["schema"], value


def test_the_document_is_openapi() -> None:
    OPENAPI_31_VALIDATOR.validate(DOCUMENT)


def test_every_schema_is_a_schema(subtests: pytest.Subtests) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas
    for name, schema in schemas.items():
        with subtests.test(name=name):
            Draft202012Validator.check_schema(schema)


def test_every_reference_resolves() -> None:
    found = set(references(DOCUMENT))
    assert len(found) > 50
    for reference in found:
        assert resolved({"$ref": reference}) is not None


def test_every_component_is_used() -> None:
    used = set(references(DOCUMENT))
    components = {
        f"#/components/{section}/{name}"
        for section, members in DOCUMENT["components"].items()
        for name in members
        if section != "securitySchemes"
    }
    assert components - used == set()


def test_every_example_fits_its_schema(subtests: pytest.Subtests) -> None:
    found = list(examples())
    assert found
    for name, schema, value in found:
        with subtests.test(name=name):
            validator(schema).validate(value)


def test_the_schemas_refuse_what_is_not_an_example_of_theirs() -> None:
    problem = validator({"$ref": "#/components/schemas/Problem"})
    example = problem_document(UnknownOutcomeError("No answer came."), "a-request", "/quotas")
    assert problem.is_valid(example)
    assert not problem.is_valid({**example, "stack_trace": "…"})
    assert not problem.is_valid({**example, "results": [{"outcome": "perhaps"}]})


def test_trying_an_operation_out_sends_what_it_needs_and_nothing_else() -> None:
    prefilled = {
        (path, method, parameter["name"])
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for parameter in map(resolved, operation.get("parameters", ()))
        if parameter["in"] != "path"
        and {"example", "examples"} & (parameter.keys() | parameter["schema"].keys())
    }
    assert prefilled == {("/quotas/resolve", "get", "user")}
    body = DOCUMENT["paths"]["/quotas/alterations"]["post"]["requestBody"]["content"]
    first = next(iter(body["application/json"]["examples"].values()))
    assert "expected" not in resolved(first)["value"]["alterations"][0]


def test_the_nulls_of_examples_survive() -> None:
    record = DOCUMENT["components"]["examples"]["alteration-record"]["value"]
    assert record["results"][0]["entity"] == {"user": "alice", "client-id": None}
    assert record["readable"] is None


def test_every_answer_has_an_example_or_problems_of_its_status(subtests: pytest.Subtests) -> None:
    for operation, described in DESCRIBED.items():
        for status, response in described["responses"].items():
            with subtests.test(operation=operation, status=status):
                answer = resolved(response)
                assert answer["description"]
                assert resolved(answer["headers"]["X-Request-Id"])["required"]
                contents = answer.get("content", {})
                assert contents or status == "304"
                is_problem = "application/problem+json" in contents
                assert is_problem or all(each["examples"] for each in contents.values())
                codes = re.findall(r"\(`([a-z-]+)`\)", answer["description"])
                assert bool(codes) == is_problem
                for code in codes:
                    assert PROBLEMS[code].status == (500 if status == "default" else int(status))


@pytest.mark.parametrize(
    ("status", "header"),
    [("401", "WWW-Authenticate"), ("409", "Retry-After"), ("429", "Retry-After")],
)
def test_headers_that_belong_to_a_status_are_described(status: str, header: str) -> None:
    required = {
        name: resolved(resolved(operation["responses"][status])["headers"][header])["required"]
        for name, operation in DESCRIBED.items()
        if status in operation["responses"]
    }
    assert required
    waiting_helps = status != "409"  # not against another owner, nor what was applied otherwise
    assert required == dict.fromkeys(required, waiting_helps)


def test_every_operation_says_what_it_is_and_who_may(subtests: pytest.Subtests) -> None:
    for operation, described in DESCRIBED.items():
        with subtests.test(operation=operation):
            assert described["tags"]
            assert described["summary"]
            assert described["description"]
            assert described["security"] == ([] if operation in PUBLIC else EVERY_SCHEME)
            assert all(resolved(parameter)["description"] for parameter in described["parameters"])
            needs_a_body = operation.startswith(("POST", "PUT"))
            assert ("requestBody" in described) == needs_a_body


def test_no_two_operations_have_one_id() -> None:
    ids = [operation["operationId"] for operation in DESCRIBED.values()]
    assert len(set(ids)) == len(ids)


def test_nothing_of_the_frameworks_own_validation_is_left() -> None:
    assert "HTTPValidationError" not in json.dumps(DOCUMENT)


COMPONENTS = DOCUMENT["components"]


def validator_of(name: str) -> Draft202012Validator:
    schema = {"$ref": f"#/components/schemas/{name}", "components": COMPONENTS}
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


ALTERATION = validator_of("AlterationRequest")
RESOLVE = validator_of("ResolveRequest")
COMPONENT = Draft202012Validator(COMPONENT_SCHEMA)
ADDRESS = Draft202012Validator(IP_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


def alteration_is_accepted(body: Any) -> bool:
    try:
        read = validated(AlterationRequest, parse_object(json.dumps(body).encode()))
    except (UnreadableRequestError, InvalidRequestError):
        return False
    return not read.violations and not judge(read.changes, {}).violations


def resolve_is_accepted(body: Any) -> bool:
    try:
        read = validated(ResolveRequest, parse_object(json.dumps(body).encode()))
    except (UnreadableRequestError, InvalidRequestError):
        return False
    broken = judge(read.changes, {}).violations if read.alterations else ()
    return not read.violations and not broken


def component_is_accepted(text: str) -> bool:
    component = parse_component(text)
    return component is not None and not filter_violations(ClientQuotaFilter((component,)))


def alteration_of(
    entity: Mapping[str, Any], *ops: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    return {"alterations": [{"entity": entity, "ops": list(ops), **more}]}


ALICE = {"user": "alice"}
REMOVE = {"key": "producer_byte_rate", "remove": True}
GOOD = alteration_of(ALICE, REMOVE)

ALTERATIONS = [
    GOOD,
    alteration_of({"user": None, "client-id": "etl"}, REMOVE),
    alteration_of({"ip": None}, {"key": "connection_creation_rate", "value": 2147483647}),
    alteration_of({"ip": "::ffff:1.2.3.4"}, {"key": "connection_creation_rate", "value": 1.0}),
    alteration_of(ALICE, {"key": "producer_byte_rate", "value": 1, "remove": False}),
    alteration_of(ALICE, REMOVE, expected={"producer_byte_rate": None, "other": "NaN"}),
    {**GOOD, "reason": None, "wait": "none", "wait_ms": 0, "all_or_nothing": False},
    {**GOOD, "reason": "\N{GRINNING FACE}" * 1000, "wait_ms": 60000, "validate_only": True},
    {},
    alteration_of({"user": "x" * 513}, REMOVE),
    alteration_of({"ip": "localhost"}, {"key": "connection_creation_rate", "value": 1}),
]

RESOLVES = [
    {"identities": []},
    {"identities": [{"user": ""}, {"user": "a", "client-id": ""}, {"ip": "::1"}]},
    {"identities": [{"user": "a"}], "alterations": [], "max_age_ms": 3_600_000},
    {"identities": [{"user": "a"}], **GOOD},
    {},
    {"identities": [], "max_age_ms": 3_600_001},
    {"identities": [], "explain": True},
    {"identities": [], **alteration_of(ALICE, REMOVE, expected={})},
    {"identities": [], "alterations": None},
]


def test_the_schemas_of_bodies_agree_with_the_rules(subtests: pytest.Subtests) -> None:
    for schema, is_accepted, bodies in [
        (ALTERATION, alteration_is_accepted, ALTERATIONS),
        (RESOLVE, resolve_is_accepted, RESOLVES),
    ]:
        assert {is_accepted(body) for body in bodies} == {True, False}
        for body in bodies:
            with subtests.test(body=body):
                assert schema.is_valid(body) == is_accepted(body)


NEAR_POWERS = st.builds(
    lambda bits, factor, offset: factor * 2**bits + offset,
    st.integers(0, 64),
    st.integers(1, 7),
    st.integers(-3, 3),
)


@given(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]),
    NEAR_POWERS | st.integers(-5, 2**65) | st.floats(0, 100),
)
@example("producer_byte_rate", 2**63 - 1)
@example("producer_byte_rate", 2**63)
@example("producer_byte_rate", 2**63 - 1024)
@example("producer_byte_rate", 2**63 - 512)
@example("consumer_byte_rate", 2**53 + 1)
def test_the_schema_of_a_byte_rate_agrees_with_the_rules(key: str, value: float) -> None:
    body = alteration_of(ALICE, {"key": key, "value": value})
    assert ALTERATION.is_valid(body) == alteration_is_accepted(body)


@given(
    st.sampled_from(["request_percentage", "controller_mutation_rate"]),
    st.integers(-5, 2 * 10**9) | st.floats(-1, 2e9) | st.floats(0, 0.02),
)
@example("request_percentage", 0.01)
@example("request_percentage", 0.00999)
@example("controller_mutation_rate", 10**9)
@example("controller_mutation_rate", 1000000000.1)
def test_the_schema_of_a_fractional_rate_agrees_with_the_rules(key: str, value: float) -> None:
    body = alteration_of(ALICE, {"key": key, "value": value})
    assert ALTERATION.is_valid(body) == alteration_is_accepted(body)


ADDRESSES = st.ip_addresses().map(str) | st.ip_addresses(v=6).map(lambda it: it.exploded)
ADDRESS_TEXTS = st.lists(
    st.sampled_from(["::", ":", "0", "1", "ab", "FFFF", "12345", ".", "256", "1.2.3.4", "g", "%1"]),
    max_size=17,
).map("".join)
MAPPED = st.ip_addresses(v=4).map(lambda it: f"::ffff:{it}")


@given(ADDRESSES | ADDRESS_TEXTS | MAPPED)
@example("1::")
@example("1:2:3:4:5:6:7::")
@example("::2:3:4:5:6:7:8")
@example("1:2:3:4:5:6:1.2.3.4")
@example("01.2.3.4")
@example(str(ipaddress.IPv6Address(1)))
def test_the_schema_of_an_address_agrees_with_the_rules(text: str) -> None:
    assert ADDRESS.is_valid(text) == (canonical_ip(text) is not None)


COMPONENT_TEXTS = st.builds(
    lambda kind, rest: kind + rest,
    st.sampled_from(["user", "client-id", "ip", "any", "group", ""]),
    st.sampled_from(
        ["", "=a", "=", "^=a", "^=", "^a", "~=a", "~a", ":default", ":any", ":absent", ":all", ":"]
    ),
)


@given(COMPONENT_TEXTS)
def test_the_schema_of_a_filter_component_agrees_with_the_rules(component: str) -> None:
    assert COMPONENT.is_valid(component) == component_is_accepted(component)
