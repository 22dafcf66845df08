"""The OpenAPI document: nothing missing, nothing dangling, every example true to its schema."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from app.http.application import create_application
from app.http.openapi import complete
from app.http.openapi.operations import OPERATIONS
from app.http.problem_codes import PROBLEMS

ANY = "400 431 default"
ASKING = f"{ANY} 401 503"
READING = f"{ASKING} 403 429 501 502"

STATUSES = {
    "GET /quotas": f"200 304 406 422 {READING}",
    "GET /quotas/capabilities": f"200 {READING}",
    "POST /quotas/alterations": f"200 207 408 409 412 413 415 422 504 {READING}",
    "GET /quotas/alterations/{alteration_id}": f"200 404 429 {ASKING}",
    "POST /quotas/alterations/{alteration_id}/revert": (
        f"200 207 404 408 409 412 413 415 422 504 {READING}"
    ),
    "POST /quotas/plans": f"200 408 413 415 422 {READING}",
    "GET /quotas/plans/{plan_id}": f"200 404 {READING}",
    "POST /quotas/plans/{plan_id}/apply": (f"200 404 408 409 410 412 413 415 422 504 {READING}"),
    "GET /quotas/resolve": f"200 422 {READING}",
    "POST /quotas/resolve": f"200 408 412 413 415 422 {READING}",
    "GET /users/scram-credentials": f"200 {READING}",
    "GET /audit": f"200 403 422 429 {ASKING}",
    "GET /analytics/utilization": f"200 404 422 {READING}",
    "GET /analytics/incidents": f"200 404 422 {READING}",
    "GET /analytics/buckets/{bucket_id}": f"200 404 422 {READING}",
    "GET /analytics/runs": f"200 404 422 {READING}",
    "POST /analytics/runs": f"202 408 413 415 422 {READING}",
    "GET /analytics/runs/{run_id}": f"200 404 {READING}",
    "POST /analytics/runs/{run_id}/cancel": f"200 404 {READING}",
    "GET /livez": f"200 {ANY}",
    "GET /readyz": f"200 422 503 {ANY}",
    "GET /metrics": f"200 {ANY}",
    "GET /version": f"200 {ANY}",
    "GET /problems/{code}": f"200 404 {ANY}",
}
EVERY_WAY = [{"bearer": []}, {"basic": []}, {"certificate": []}]

PUBLIC = {"GET /livez", "GET /readyz", "GET /metrics", "GET /version", "GET /problems/{code}"}


def no_services() -> Any:
    raise AssertionError("describing an application opens nothing")


DOCUMENT = create_application(no_services).openapi()
DESCRIBED = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def resolved(node: Any) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        target = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def dictionaries(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from dictionaries(child)


def references(node: Any) -> Iterator[str]:
    return (one["$ref"] for one in dictionaries(node) if isinstance(one.get("$ref"), str))


def examples() -> Iterator[Any]:
    """Yield a name, the schema and the value of every example outside the components' own."""
    for one in dictionaries(DOCUMENT):
        if isinstance(one.get("schema"), dict):
            given = {
                name: resolved(each)["value"] for name, each in one.get("examples", {}).items()
            }
            if "example" in one:
                given[str(one.get("name", one.get("description")))] = one["example"]
            for name, value in given.items():
                yield pytest.param(one["schema"], value, id=name)


def test_the_document_is_openapi() -> None:
    OPENAPI_31_VALIDATOR.validate(DOCUMENT)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


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


@pytest.mark.parametrize(("schema", "value"), list(examples()))
def test_every_example_fits_its_schema(schema: Any, value: Any) -> None:
    validator(schema).validate(value)


def test_the_schemas_refuse_what_is_not_an_example_of_theirs() -> None:
    problem = validator({"$ref": "#/components/schemas/Problem"})
    example = DOCUMENT["components"]["examples"]["problem-outcome-unknown"]["value"]
    assert problem.is_valid(example)
    assert not problem.is_valid({**example, "stack_trace": "…"})
    assert not problem.is_valid({**example, "results": [{"outcome": "perhaps"}]})


def test_the_nulls_of_examples_survive() -> None:
    record = DOCUMENT["components"]["examples"]["alteration-record"]["value"]
    assert record["results"][0]["entity"] == {"user": "alice", "client-id": None}
    assert record["readable"] is None


@pytest.mark.parametrize("operation", STATUSES)
def test_every_operation_lists_its_statuses(operation: str) -> None:
    assert set(DESCRIBED[operation]["responses"]) == set(STATUSES[operation].split())


@pytest.mark.parametrize("operation", STATUSES)
def test_every_answer_has_an_example_and_a_request_id(operation: str) -> None:
    for status, response in DESCRIBED[operation]["responses"].items():
        answer = resolved(response)
        assert answer["description"]
        assert resolved(answer["headers"]["X-Request-Id"])["required"]
        if status != "304":
            assert answer["content"]
        for content in answer.get("content", {}).values():
            assert content["examples"]


@pytest.mark.parametrize("operation", STATUSES)
def test_every_example_of_a_problem_has_the_status_of_its_answer(operation: str) -> None:
    documents = [
        (status, resolved(example)["value"])
        for status, response in DESCRIBED[operation]["responses"].items()
        for example in resolved(response)
        .get("content", {})
        .get("application/problem+json", {})
        .get("examples", {})
        .values()
    ]
    assert documents
    for status, document in documents:
        assert document["status"] == (500 if status == "default" else int(status))
        assert document["code"] in PROBLEMS


OWNER_CONFLICT = ("409", "POST /quotas/plans/{plan_id}/apply")
"""Waiting does not help against another owner."""


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
    assert required == {name: (status, name) != OWNER_CONFLICT for name in required}


@pytest.mark.parametrize("operation", STATUSES)
def test_every_operation_says_what_it_is_and_who_may(operation: str) -> None:
    described = DESCRIBED[operation]
    assert described["tags"]
    assert described["summary"]
    assert described["description"]
    assert described["security"] == ([] if operation in PUBLIC else EVERY_WAY)
    assert all(resolved(one)["description"] for one in described["parameters"])
    needs_a_body = operation.startswith("POST") and not operation.endswith("/cancel")
    assert ("requestBody" in described) == needs_a_body


def test_operations_and_routes_are_the_same() -> None:
    assert set(DESCRIBED) == set(OPERATIONS) == set(STATUSES)
    ids = Counter(operation["operationId"] for operation in DESCRIBED.values())
    assert set(ids.values()) == {1}


def test_a_route_without_a_description_cannot_be_published() -> None:
    plain = {"info": {"title": "", "version": ""}, "paths": {"/new": {"get": {}}}}
    with pytest.raises(KeyError, match="GET /new"):
        complete(plain)


def test_nothing_of_the_frameworks_own_validation_is_left() -> None:
    assert "HTTPValidationError" not in json.dumps(DOCUMENT)
