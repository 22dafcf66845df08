"""Requests from the OpenAPI document, its examples and generated ones: answered as it says."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as fixed_seed
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.pytest.lazy import get_all_tests

from app.http.application import openapi_document
from app.localdev.examples import QUOTAS
from app.localdev.kafka import LocalKafka
from tests.integration.http.service_calls import I, R, change
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

SEED = 546
ALICE = {"Authorization": "Bearer alice"}

pytestmark = pytest.mark.timeout(1800)

PARTIAL = 207

ENDLESS = "/audit/stream"
"""Its answer does not end; test_audit_stream has its requests."""

BEYOND_A_SCHEMA = {
    "bad-page-token",
    "bad-supersede",
    "idempotency-key-reused",
    "expectation-failed",
    "invalid-request",
    "no-alterations",
    "plan-outdated",
    "refused-by-broker",
}
"""Refusals of requests that fit their schema: a token that nobody made, an entity twice, an address
beside a user, values that do not hold, a key of another request, a plan that something has come
before; and a header whose pattern the generator does not follow."""

TEXT_OF_A_PLAN = {"unreadable-document", "unreadable-value", "wrong-format"}
"""What is wrong with texts of a plan: no schema says what YAML and CSV are, that a text needs its
format, nor which unit a value's key has."""


@pytest.fixture(scope="module")
def documented() -> schemathesis.BaseSchema:
    """The document without its catch-all answers, so that each status must be named."""
    document = openapi_document()
    del document["paths"][ENDLESS]
    for operations in document["paths"].values():
        for operation in operations.values():
            del operation["responses"]["default"]
    loaded = schemathesis.openapi.from_dict(document)
    loaded.hook(filter_failure)
    return loaded


def filter_failure(
    _context: Any, failure: Exception, case: schemathesis.Case, response: Any
) -> bool:
    """Let the service refuse what fits the schema and breaks a rule that no schema can say.

    Without ``all_or_nothing`` an alteration that breaks the schema is refused alone: 207. A
    parameter that breaks it by being null is not sent at all.
    """
    if isinstance(failure, schemathesis.core.failures.AcceptedNegativeData):
        left_out = None in dict(case.query or {}).values()
        return bool(response.status_code != PARTIAL) and not left_out
    rejected = isinstance(failure, schemathesis.openapi.checks.RejectedPositiveData)
    if not rejected:
        return True
    problem = response.json()
    codes = {error["code"] for error in problem["errors"]}
    is_text = case.operation.label == "POST /quotas/plans" and codes <= TEXT_OF_A_PLAN
    return problem["code"] not in BEYOND_A_SCHEMA and not is_text


@schemathesis.deserializer("text/csv", "application/x-ndjson", "text/html", "text/plain")
def _as_text(_context: Any, response: Any) -> str:
    return str(response.text)


@pytest.fixture(scope="module")
def target(broker: LocalKafka, service: RunningService) -> Iterator[RunningService]:
    """The service, on a broker that generated quotas cannot slow down.

    A small ``request_percentage`` or ``connection_creation_rate`` for a default entity would
    throttle the service itself, which is ANONYMOUS at 127.0.0.1.
    """
    user, address = {"user": "ANONYMOUS"}, {"ip": "127.0.0.1"}
    answer = service.alter(change(user, {R: 10**9}), change(address, {I: 2**31 - 1}))
    assert answer.status_code == 200
    yield service
    with RawQuotas(broker.bootstrap_servers) as raw:
        raw.become({})


@pytest.fixture(scope="module")
def connection() -> Iterator[requests.Session]:
    """Keep the connection open from one request to the next; look for no proxy."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


def at_most(examples: int) -> settings:
    """Return settings that repeat the same run each time."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def requests_to(
    documented: schemathesis.BaseSchema, request: Callable[[schemathesis.Case], None]
) -> list[tuple[schemathesis.schemas.APIOperation, Callable[[], None]]]:
    """Return each operation with a function that sends all the generated requests to it.

    They are generated here: generating them takes seconds, and each process of a run collects.
    """
    tests = get_all_tests(schema=documented, test_func=request, settings=None, given_kwargs=None)
    return [test.ok() for test in tests]


def rule_of(case: schemathesis.Case) -> tuple[object, ...] | None:
    """Return what of the document an enumerated request tries; null for a random one."""
    tries = case.meta.phase.data
    if not isinstance(tries, CoveragePhaseData):
        return None
    position = (tries.parameter_location, tries.parameter, tries.location)
    return (case.operation.label, case.method, tries.scenario, *position)


def test_every_answer_is_one_that_the_document_names_and_none_tells_anything_to_nobody(
    documented: schemathesis.BaseSchema,
    target: RunningService,
    connection: requests.Session,
    subtests: pytest.Subtests,
) -> None:
    """Send each request with a credential, then without one.

    Without one, nothing of a request is read: the short run sends one of each method. It tries
    each rule of the document once, the long run with every value of the wrong type and the like.
    """
    refused: set[tuple[str, str]] = set()
    tried: set[tuple[object, ...]] = set()

    @fixed_seed(SEED)
    @at_most(size(2, 20))
    def request(case: schemathesis.Case) -> None:
        rule = rule_of(case)
        if rule in tried:
            return
        if rule is not None and size(short=True, long=False):
            tried.add(rule)
        case.call_and_validate(base_url=target.url, session=connection, headers=ALICE)
        if (case.operation.label, case.method) in refused:
            return
        if size(short=True, long=False):
            refused.add((case.operation.label, case.method))
        response = case.call_and_validate(base_url=target.url, session=connection)
        needs_a_caller = bool(case.operation.definition.raw["security"])
        if needs_a_caller and case.method == case.operation.method.upper():
            assert response.status_code == 401

    for operation, send_requests in requests_to(documented, request):
        with subtests.test(operation.label):
            send_requests()


@pytest.mark.long
def test_what_one_answer_names_can_be_asked_for_next(
    documented: schemathesis.BaseSchema, target: RunningService, connection: requests.Session
) -> None:
    class Conversation(documented.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"base_url": target.url, "session": connection, "headers": ALICE}

    Conversation.run(settings=at_most(6))


UNUSED = {"bucket_id", "run_id"}
"""What nothing before has made here: the pipeline has not run."""


@pytest.fixture
def _as_after_make_run(service: RunningService, empty_cluster: RawQuotas) -> None:
    answer = service.alter(*(change(dict(entity), values) for entity, values in QUOTAS))
    assert answer.status_code == 200, answer.text


def resolved(document: Any, node: Any) -> Any:
    while "$ref" in node:
        target = document
        for name in node["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        node = target
    return node


def documented_requests(document: Any) -> Iterator[tuple[str, str, Mapping[str, str], Any]]:
    """Yield method, path, examples of the path's parameters and body of each; null for no body."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = {
                parameter["name"]: next(iter(parameter["examples"].values()))["value"]
                for parameter in map(partial(resolved, document), operation["parameters"])
                if parameter["in"] == "path" and "examples" in parameter
            }
            content = operation.get("requestBody", {}).get("content", {})
            examples = content.get("application/json", {}).get("examples", {"": {"value": None}})
            for example in examples.values():
                yield method.upper(), path, parameters, resolved(document, example)["value"]


@pytest.mark.usefixtures("_as_after_make_run")
def test_the_examples_work_when_executed_in_order(service: RunningService) -> None:
    ids: dict[str, str] = {}
    asked = list(documented_requests(openapi_document()))
    for method, path, parameters, body in asked:
        values = {**ids, **parameters}
        if any(f"{{{name}}}" in path for name in UNUSED) or path.startswith("/analytics"):
            continue
        if path == ENDLESS:
            continue
        if path.endswith("/apply"):  # a plan is applied once, and each example does it anew
            again = next(wanted for _, at, _, wanted in asked if at == "/quotas/plans")
            ids["plan_id"] = service.api().post("/quotas/plans", json=again).json()["plan_id"]
            values = {**ids, **parameters}
        if path.endswith("/expiry"):  # one that is for good has no end to change
            again = next(wanted for _, _, _, wanted in asked if "expires_in" in (wanted or ()))
            answer = service.api().post("/quotas/alterations", json=again)
            values |= {"alteration_id": answer.json()["alteration_id"]}
        query = {"user": "alice"} if (method, path) == ("GET", "/quotas/resolve") else {}
        url = path.format_map(values)
        answer = service.api().request(method, url, params=query, json=body)
        assert answer.status_code == 200, f"{method} {path} {body}: {answer.text[:500]}"
        if answer.headers["Content-Type"] == "application/json":
            ids |= {name: str(text) for name, text in answer.json().items() if name.endswith("_id")}
