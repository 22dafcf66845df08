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
from app.http.guards import is_of_service
from app.http.models import (
    AlterationId,
    AlterationResult,
    ExceededBudget,
    QuotaValues,
    RequestId,
    ResponseModel,
)
from app.http.quotas.formats import QuotaDocument
from app.http.responses import PROBLEM_RESPONSES

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
    line: Annotated[int, Field(ge=1)] | MISSING = MISSING
    """Of the document, where it was sent as text."""
    values: ViolationValues | MISSING = MISSING
    budget: ExceededBudget | MISSING = MISSING
    """Only of `budget-exceeded`."""


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


_LINE_END: Final = re.compile("(?<!\n)\n(?!\n)")
"""Within a paragraph of a docstring."""

_REFERENCE: Final = re.compile('"#/components/schemas/([^"]+)"')

_TYPES: Final = {str: "string", bool: "boolean", int: "integer"}

_TEMPLATE: Final = "#/components/schemas/{model}"

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
    written = _read("openapi.yaml")
    root = written["servers"][:1]
    paths = {
        path: {
            method: _operation(operation) | ({"servers": root} if is_of_service(path) else {})
            for method, operation in methods.items()
        }
        for path, methods in document["paths"].items()
    }
    components = {
        **written["components"],
        "responses": PROBLEM_RESPONSES,
        "examples": _read("examples.yaml"),
    }
    named = _referenced_schemas([paths, components], schemas)
    return {
        **document,
        **written,
        "info": {**document["info"], **written["info"]},
        "paths": paths,
        "components": {
            "schemas": {name: _plain(schemas[name]) for name in sorted(named)},
            **components,
        },
    }


def _read(name: str) -> Any:
    return yaml.safe_load((files("app.http") / name).read_bytes())


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
