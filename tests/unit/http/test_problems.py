"""Problem documents: one for every error, complete, and with a page for people."""

import ast
import json
import math
import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

import app
from app.domain.alterations import AlterationResult, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import (
    BrokerError,
    EntityBusyError,
    InvalidRequestError,
    NotSentError,
    QuotaError,
    Retry,
    Sent,
    TooManyRequestsError,
    UnauthenticatedError,
    UnknownOutcomeError,
    UnreadableRequestError,
    Violation,
)
from app.http.errors import InvalidTokenError
from app.http.pages import problem_page
from app.http.problem_catalog import PROBLEMS
from app.http.problems import problem_document, problem_headers, problem_response, status_of

EXPECTED_STATUS = {
    "UnreadableRequestError": 400,
    "UnauthenticatedError": 401,
    "InvalidTokenError": 401,
    "ClusterAuthorizationError": 403,
    "NotFoundError": 404,
    "NotAcceptableError": 406,
    "RequestTimeoutError": 408,
    "EntityBusyError": 409,
    "OutcomeSupersededError": 409,
    "ExpectationFailedError": 412,
    "BodyTooLargeError": 413,
    "UnsupportedMediaTypeError": 415,
    "InvalidRequestError": 422,
    "TooManyRequestsError": 429,
    "HeadersTooLargeError": 431,
    "QuotaError": 500,
    "UnsupportedVersionError": 501,
    "OwnerConflictError": 409,
    "BeforeUnknownError": 409,
    "PlanExpiredError": 410,
    "BrokerError": 502,
    "NotSentError": 503,
    "OutcomeNotRecordedError": 503,
    "UnknownOutcomeError": 504,
}


def kinds(kind: type[QuotaError] = QuotaError) -> Iterator[type[QuotaError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from kinds(child)


def test_each_class_of_error_has_the_status_of_the_contract(subtests: pytest.Subtests):
    for name, status in EXPECTED_STATUS.items():
        with subtests.test(name=name):
            (kind,) = (found for found in kinds() if found.__name__ == name)
            assert status_of(kind("why")) == status


def test_no_error_class_of_the_project_is_a_fault_by_oversight():
    faults = {kind.__name__ for kind in kinds() if status_of(kind("why")) == 500}
    assert faults == {"QuotaError", "CallbackFailedError"}


KEBAB = re.compile("[a-z]+(-[a-z]+)*")
Constants = dict[str, ast.expr | None]


def constants_in(nodes: Sequence[ast.AST]) -> Constants:
    annotated = (node for node in nodes if isinstance(node, ast.AnnAssign))
    return {ast.unparse(node.target): node.value for node in annotated}


def codes_in(nodes: Sequence[ast.AST], constants: Constants) -> Iterator[str]:
    """Yield each code that a module gives an error: ``code=…``, or ``(SomeError, "…")``."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(kind), keywords=keywords) if kind.endswith("Error"):
                arguments = [keyword.value for keyword in keywords if keyword.arg == "code"]
            case ast.Tuple(elts=[ast.Name(kind), ast.expr() as code]) if kind.endswith("Error"):
                arguments = [code]
            case _:
                continue
        for value in arguments:
            named = constants.get(value.id) if isinstance(value, ast.Name) else value
            if isinstance(named, ast.Constant) and KEBAB.fullmatch(str(named.value)):
                yield str(named.value)


def codes_in_sources() -> set[str]:
    texts = (path.read_text() for path in Path(app.__file__).parent.rglob("*.py"))
    modules = [[*ast.walk(ast.parse(text))] for text in texts if "Error" in text]
    constants = [constants_in(nodes) for nodes in modules]
    shared = dict(ChainMap(*reversed(constants)))
    return {
        code
        for nodes, own in zip(modules, constants, strict=True)
        for code in codes_in(nodes, shared | own)
    }


NEVER_ANSWERED = {"fence-broken"}
"""Recovery's own: it starts again, and there is no answer."""


def test_every_code_of_the_project_has_a_page():
    codes = {kind.default_code for kind in kinds()} | codes_in_sources()
    assert {"bad-page-token", "throttled-by-broker", "audit-log-unavailable"} <= codes
    assert codes - set(PROBLEMS) == NEVER_ANSWERED
    for code in PROBLEMS:
        page = problem_page(code)
        assert page is not None
        assert f"<code>{code}</code>" in page
        assert "<code>never</code>: change\nthe request first" in page
        assert not re.search("(src|href)=", page)


def test_a_problem_has_exactly_the_members_of_the_contract():
    error = BrokerError("boom", kafka_error="UNKNOWN_SERVER_ERROR", sent=Sent.YES)
    assert problem_document(error, "r1", "/quotas") == {
        "type": "/problems/broker-error",
        "title": "The broker answered with an error",
        "status": 502,
        "detail": "boom",
        "instance": "/quotas",
        "code": "broker-error",
        "request_id": "r1",
        "kafka_error": "UNKNOWN_SERVER_ERROR",
        "sent_to_cluster": "yes",
        "retry": "never",
        "errors": [],
    }


def test_violations_keep_their_order_and_their_values():
    violations = [
        Violation("/a", "one", "First."),
        Violation(
            "/b",
            "two",
            "Second.",
            "INVALID_REQUEST",
            values={"x": math.nan, "y": None, "z": [1024.0, Decimal("0.5")], "w": "text"},
        ),
    ]
    document = problem_document(InvalidRequestError("no", violations=violations), "r", "/")
    assert document["kafka_error"] == "INVALID_REQUEST"
    assert document["code"] == "invalid-request"
    assert document["errors"] == [
        {"pointer": "/a", "code": "one", "detail": "First."},
        {
            "pointer": "/b",
            "code": "two",
            "detail": "Second.",
            "kafka_error": "INVALID_REQUEST",
            "values": {"x": "NaN", "y": None, "z": [1024, 0.5], "w": "text"},
        },
    ]


def test_the_kafka_error_of_the_error_itself_comes_first():
    violation = Violation("filter", "x", "y", "INVALID_REQUEST")
    error = InvalidRequestError("no", kafka_error="UNSUPPORTED_VERSION", violations=[violation])
    assert problem_document(error, "r", "/")["kafka_error"] == "UNSUPPORTED_VERSION"


@pytest.mark.parametrize("code", ["no-alterations", "too-many-changes", "too-large"])
def test_an_invalid_request_of_one_kind_with_a_page_has_its_code(code: str):
    violation = Violation("/alterations", code, "No.")
    error = InvalidRequestError("no", violations=[violation])
    assert problem_document(error, "r", "/")["type"] == f"/problems/{code}"
    several = InvalidRequestError("no", violations=[violation, Violation("/x", "other", "No.")])
    assert problem_document(several, "r", "/")["code"] == "invalid-request"
    other = InvalidRequestError("no", code="not-found", violations=[violation])
    assert problem_document(other, "r", "/")["code"] == "not-found"


def test_an_error_of_an_alteration_tells_where_the_truth_will_be():
    result = AlterationResult(ClientQuotaEntity.of({"user": "a"}), Outcome.UNKNOWN)
    error = UnknownOutcomeError("late", alteration_id="0192", results=[result])
    document = problem_document(error, "r", "/quotas/alterations")
    assert document["alteration_id"] == "0192"
    assert document["results"][0]["outcome"] == "unknown"
    assert (document["sent_to_cluster"], document["retry"]) == ("maybe", "same-key-only")
    assert problem_headers(error) == {"Location": "/quotas/alterations/0192"}


def test_an_error_brings_its_headers(subtests: pytest.Subtests):
    for error, headers in [
        (NotSentError("x"), {}),
        (NotSentError("x", retry_after_s=0.2), {"Retry-After": "1"}),
        (TooManyRequestsError("x", retry_after_s=2.1), {"Retry-After": "3"}),
        (TooManyRequestsError("x"), {"Retry-After": "1"}),
        (EntityBusyError("x"), {"Retry-After": "1"}),
        (UnauthenticatedError("x"), {"WWW-Authenticate": "Bearer"}),
        (InvalidTokenError("x"), {"WWW-Authenticate": 'Bearer error="invalid_token"'}),
    ]:
        with subtests.test(error=error, headers=headers):
            assert problem_headers(error) == headers


def test_hostile_text_in_an_error_is_escaped():
    name = "\ud800\n<script>"
    violations = [Violation(f"/{name}", "c", name, values={name: name})]
    error = UnreadableRequestError(name, violations=violations, retry=Retry.SAFE)
    response = problem_response(error, "r", "/", {"Allow": "GET"})
    assert response.media_type == "application/problem+json"
    assert response.headers["allow"] == "GET"
    assert json.loads(bytes(response.body))["errors"][0]["values"] == {name: name}


def test_there_is_no_page_for_an_unknown_code():
    assert problem_page("no-such-code") is None
