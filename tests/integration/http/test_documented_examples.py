"""Every example of a request in the OpenAPI document, in its order, with alice's token."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import httpx
import pytest

from app.localdev.examples import QUOTAS
from app.serving import openapi_document
from tests.integration.http.service_calls import change
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

UNUSED = {"bucket_id", "run_id"}
"""What nothing before has made here: the pipeline has not run."""


@pytest.fixture
def _as_after_make_run(service: RunningService, empty_cluster: RawQuotas) -> None:
    answer = service.alter(*(change(dict(entity), values) for entity, values in QUOTAS))
    assert answer.status_code == 200, answer.text


@cache
def document() -> Any:
    """Return the document: it is not written while tests are collected, which each worker does."""
    return openapi_document()


def resolved(node: Any) -> Any:
    while "$ref" in node:
        target = document()
        for name in node["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        node = target
    return node


def requests() -> Iterator[tuple[str, str, Mapping[str, str], Any]]:
    """Yield method, path, examples of the path's parameters and body of each; null for no body."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            parameters = {
                parameter["name"]: next(iter(parameter["examples"].values()))["value"]
                for parameter in map(resolved, operation["parameters"])
                if parameter["in"] == "path" and "examples" in parameter
            }
            content = operation.get("requestBody", {}).get("content", {})
            examples = content.get("application/json", {}).get("examples", {"": {"value": None}})
            for example in examples.values():
                yield method.upper(), path, parameters, resolved(example)["value"]


@pytest.mark.usefixtures("_as_after_make_run")
def test_the_examples_work_when_executed_in_order(service: RunningService) -> None:
    ids: dict[str, str] = {}
    for method, path, parameters, body in requests():
        values = {**ids, **parameters}
        if any(f"{{{name}}}" in path for name in UNUSED) or path.startswith("/analytics"):
            continue
        if path.endswith("/apply"):  # a plan is applied once, and each example does it anew
            again = next(wanted for _, at, _, wanted in requests() if at == "/quotas/plans")
            ids["plan_id"] = service.api().post("/quotas/plans", json=again).json()["plan_id"]
            values = {**ids, **parameters}
        query = {"user": "alice"} if (method, path) == ("GET", "/quotas/resolve") else {}
        url = path.format_map(values)
        answer = service.api().request(method, url, params=query, json=body)
        asked = f"{method} {path} {body}: {answer.text[:500]}"
        assert answer.status_code == httpx.codes.OK, asked
        if answer.headers["Content-Type"] == "application/json":
            ids |= {name: str(text) for name, text in answer.json().items() if name.endswith("_id")}
