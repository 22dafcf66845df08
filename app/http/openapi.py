"""The OpenAPI document: what FastAPI makes of the routes, and what generation cannot say."""

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any, Final

import yaml
from fastapi import FastAPI
from pydantic import MISSING, ConfigDict, Field, TypeAdapter

from app.domain.errors import MAX_VIOLATIONS, Retry, Sent
from app.http.models import AlterationId, AlterationResult, QuotaValues, RequestId, ResponseModel
from app.http.quotas.models import QuotaDocument
from app.http.responses import HEADERS, PROBLEM_RESPONSES, REQUEST_HEADERS, SCHEMES

_CODE: Final = "[a-z0-9]+(-[a-z0-9]+)*"

_Code = Annotated[str, Field(pattern=f"^{_CODE}$", description="The kind of problem.")]


class ViolationValues(ResponseModel):
    """Further members for programs, such as the `current` values."""

    model_config = ConfigDict(extra="allow")

    current: QuotaValues | MISSING = MISSING


class Violation(ResponseModel):
    """One broken rule and where it is broken."""

    pointer: str
    """A JSON pointer into the body, or a query parameter or header."""
    code: Annotated[str, Field(pattern=f"^{_CODE}$")]
    """The broken rule."""
    detail: str
    """A sentence that says what to do."""
    kafka_error: str | MISSING = MISSING
    """What a broker would have answered; only where it would refuse."""
    values: ViolationValues | MISSING = MISSING


class Problem(ResponseModel):
    """Why a request was not done. No stack trace, no secret."""

    type: Annotated[str, Field(pattern=f"^/problems/{_CODE}$")]
    """The path of a page for people."""
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    """A sentence for people."""
    instance: str
    """The path of the request."""
    code: _Code
    request_id: RequestId
    kafka_error: str | None
    """Kafka's name, such as `INVALID_REQUEST`."""
    sent_to_cluster: Sent
    """Whether a request that changes something has left this service."""
    retry: Retry
    """Whether the request may be repeated as it is."""
    errors: Annotated[
        list[Violation], Field(description=f"Every violation, up to {MAX_VIOLATIONS}, then `more`.")
    ]
    alteration_id: AlterationId | MISSING = MISSING
    results: list[AlterationResult] | MISSING = MISSING
    """In request order, where the alteration got that far."""


_INTRODUCTION: Final = """\
Describe, alter and resolve the client quotas of an Apache Kafka cluster.

* **Entities** are objects from entity type (`user`, `client-id`, `ip`) to name. `null` is the \
default entity; a type that the entity does not have is missing.
* **Errors** are problem documents (RFC 9457) that list every violation. `sent_to_cluster` and \
`retry` say whether something may have changed and whether to repeat.
* **Repeating** an alteration is safe with an `Idempotency-Key`: it is answered with what became \
of the first request, and changes nothing.
* **Strictness**: what cannot be read is 400: unknown fields and parameters, repeated JSON keys, \
wrong types. What can be read and breaks a rule is 422.
* **Rights** are the broker's: reading needs `DESCRIBE_CONFIGS`, altering `ALTER_CONFIGS` on the \
Cluster resource `kafka-cluster`.
* **Times** are RFC 3339 in UTC with milliseconds.
"""

_TAGS: Final = (
    {"name": "quotas", "description": "What is stored, and what can be."},
    {"name": "alterations", "description": "Change quotas; every change has a record."},
    {"name": "plans", "description": "Documents of desired quotas: compare, then apply."},
    {"name": "resolve", "description": "Which limits apply to a client, and why."},
    {"name": "audit", "description": "Who changed what, when, and what became of it."},
    {"name": "users", "description": "Who can log in, so that a quota can have a user."},
    {"name": "analytics", "description": "Who is near a limit, and who was throttled."},
    {"name": "operation", "description": "For operators; no credential is needed."},
)

_LINE_END: Final = re.compile("(?<!\n)\n(?!\n)")
"""Within a paragraph of a docstring."""

_REFERENCE: Final = re.compile('"#/components/schemas/([^"]+)"')

_TYPES: Final = {str: "string", bool: "boolean", int: "integer"}

_TEMPLATE: Final = "#/components/schemas/{model}"

_EXAMPLES: Final = files("app.http") / "examples.yaml"

_MoreModels = Problem | QuotaDocument
"""What no route names as its model."""


def describe(app: FastAPI) -> None:
    """Let an application return the whole document."""
    generated = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(generated())
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def complete(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of FastAPI with the components that its routes refer to."""
    more = TypeAdapter(tuple[_MoreModels]).json_schema(ref_template=_TEMPLATE)
    schemas = _with_named_objects({**more["$defs"], **document["components"]["schemas"]})
    paths = {
        path: {method: _operation(operation) for method, operation in methods.items()}
        for path, methods in document["paths"].items()
    }
    named = _referenced_schemas([paths, PROBLEM_RESPONSES, HEADERS], schemas)
    return {
        **document,
        "info": {**document["info"], "description": _INTRODUCTION},
        "servers": [{"url": "/", "description": "This service."}],
        "tags": [dict(tag) for tag in _TAGS],
        "paths": paths,
        "components": {
            "schemas": {name: _plain(schemas[name]) for name in sorted(named)},
            "responses": PROBLEM_RESPONSES,
            "parameters": REQUEST_HEADERS,
            "examples": yaml.safe_load(_EXAMPLES.read_bytes()),
            "headers": HEADERS,
            "securitySchemes": SCHEMES,
        },
    }


def _with_named_objects(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return schemas in which each titled object, and each default, is a schema of its own.

    Generators of clients number an object without a name, or leave it out; and openapi-typescript
    makes a member required that has its default beside it.
    """
    named: dict[str, Any] = {}

    def lifted(node: Any) -> Any:
        if isinstance(node, list):
            return [lifted(item) for item in node]
        members = {name: lifted(node[name]) for name in node} if isinstance(node, dict) else node
        match node:
            case {"title": str(title), "properties": _} | {"title": str(title), "default": _}:
                name = re.sub("(?:^|[ _])(.)", lambda match: match[1].upper(), title)
                named[name] = members
                return {"$ref": _TEMPLATE.format(model=name)}
        return members

    return {**lifted(schemas), **named}


def _referenced_schemas(node: Any, schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that something in the document refers to."""
    named: set[str] = set()
    further = set(_REFERENCE.findall(json.dumps(node)))
    while further:
        named |= further
        nodes = [schemas[name] for name in further]
        further = set(_REFERENCE.findall(json.dumps(nodes))) - named
    return named


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    plain = _plain(operation)
    responses = plain["responses"]
    for status, response in responses.items():
        if "$ref" in response:
            responses[status] = {"$ref": response["$ref"]}
    return {**plain, "responses": dict(sorted(responses.items()))}


def _plain(node: Any) -> Any:
    """Return a schema without titles, which repeat names, and with whole bounds as integers."""
    match node:
        case dict():
            members = {
                name: _plain(value)
                for name, value in node.items()
                if name != "title" or isinstance(value, dict)
            }
            return {**_type_of_constant(node), **members}
        case list():
            return [_plain(item) for item in node]
        case float() if node.is_integer():
            return int(node)
        case str():
            return _LINE_END.sub(" ", node)
        case _:
            return node


def _type_of_constant(schema: Mapping[str, Any]) -> dict[str, str]:
    """Without it openapi-python-client writes code that no Python reads."""
    match schema:
        case {"const": value} | {"enum": [value, *_]}:
            return {"type": _TYPES[type(value)]}
    return {}
