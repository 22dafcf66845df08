"""Every answer has its request id, its log line and its headers; every error is a problem."""

import asyncio
import re
from typing import Any

import pytest
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from app.domain.errors import ClusterAuthorizationError, UnauthenticatedError
from app.http.errors import InvalidTokenError
from app.http.metrics import HttpMetrics
from app.http.middleware import MAX_HEADER_BYTES
from tests.unit.http.application import RawHeaders, around, raw_headers, sample, send
from tests.unit.http.fake_service import FakeService

JSON = (b"content-type", b"application/json")
ERRORS = [
    RuntimeError("secret detail"),
    ClusterAuthorizationError("no", kafka_error="CLUSTER_AUTHORIZATION_FAILED"),
    UnauthenticatedError("who?"),
    InvalidTokenError("bad"),
]


@pytest.fixture
def app(metrics: HttpMetrics) -> ASGIApp:
    return around(metrics, ERRORS)


@pytest.mark.parametrize("request_id", ["a", "A.b_c-9", "x" * 128])
async def test_a_good_request_id_is_echoed(app: ASGIApp, request_id: str):
    answer = await send(app, "GET", "/whoami", headers=[(b"x-request-id", request_id.encode())])
    assert answer.headers["x-request-id"] == request_id
    assert answer.document == {"request_id": request_id}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-request-id", b"")],
        [(b"x-request-id", b"x" * 129)],
        [(b"x-request-id", b"a b")],
        [(b"x-request-id", b"a\n")],
        [(b"x-request-id", b"\xe4")],
        [(b"x-request-id", b"a"), (b"x-request-id", b"b")],
    ],
)
async def test_otherwise_a_request_id_is_made(app: ASGIApp, headers: RawHeaders):
    answer = await send(app, "GET", "/whoami", headers=headers)
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert answer.document == {"request_id": answer.headers["x-request-id"]}


async def test_each_request_is_one_log_line(app: ASGIApp):
    with capture_logs() as lines:
        await send(app, "GET", "/whoami", headers=[(b"x-request-id", b"r1")])
        await send(app, "GET", "/raise/1?token=hidden", headers=[(b"x-request-id", b"r2")])
    first, second = lines
    assert first.pop("duration_ms") >= 0
    assert first == {
        "log_level": "info",
        "event": "request",
        "method": "GET",
        "route": "/whoami",
        "status": 200,
        "request_id": "r1",
        "principal": "User:alice",
        "bytes": 20,
        "code": None,
    }
    assert (second["route"], second["status"]) == ("/raise/{index}", 403)
    assert second["code"] == "cluster-authorization-failed"
    assert "hidden" not in str(lines)


async def test_every_answer_has_the_security_headers(app: ASGIApp):
    for path in ("/whoami", "/nowhere", "/raise/0", "/echo"):
        answer = await send(app, "GET", path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        expected = "no-cache" if path == "/echo" else "no-store"
        assert answer.headers["cache-control"] == expected


async def test_a_fault_is_a_problem_without_its_secrets(app: ASGIApp):
    with capture_logs() as lines:
        answer = await send(app, "GET", "/raise/0", headers=[(b"x-request-id", b"r1")])
    assert answer.status == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == "r1"
    assert answer.document["code"] == "internal-error"
    assert answer.document["instance"] == "/raise/0"
    assert b"secret" not in answer.body
    assert [line["event"] for line in lines] == ["fault", "request"]
    assert lines[0]["exc_info"]


@pytest.mark.parametrize(("method", "sent"), [("GET", "no"), ("HEAD", "no"), ("POST", "maybe")])
async def test_after_a_fault_nobody_claims_that_nothing_was_altered(
    app: ASGIApp, method: str, sent: str
):
    answer = await send(app, method, "/raise/0")
    assert (answer.status, answer.document["sent_to_cluster"]) == (500, sent)


async def test_a_stream_that_breaks_is_cut_off_and_not_completed(app: ASGIApp):
    with pytest.raises(RuntimeError), capture_logs() as lines:
        await send(app, "GET", "/broken-stream")
    assert [line["event"] for line in lines] == ["fault", "request"]


async def test_an_unknown_path_is_a_problem(app: ASGIApp):
    answer = await send(app, "GET", "/a%20b/\N{LATIN SMALL LETTER U WITH DIAERESIS}")
    assert (answer.status, answer.document["code"]) == (404, "not-found")
    assert answer.document["instance"] == "/a%2520b/%C3%BC"


@pytest.mark.parametrize("method", ["DELETE", "PUT", "OPTIONS", "TRACE", "X-ODD"])
async def test_another_method_is_a_problem_that_lists_every_method_of_the_path(
    app: ASGIApp, method: str
):
    answer = await send(app, method, "/echo")
    assert (answer.status, answer.document["code"]) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST"


async def test_head_is_answered_like_get_and_logged_as_what_it_is(app: ASGIApp):
    with capture_logs() as lines:
        answer = await send(app, "HEAD", "/echo")
        assert (await send(app, "HEAD", "/whoami")).body
    assert (answer.status, answer.headers["etag"]) == (200, '"a"')
    seen = [(line["method"], line["route"], line["bytes"]) for line in lines]
    assert seen == [("HEAD", "/echo", 0), ("HEAD", "/whoami", 0)], "the server sends no content"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([(b"x", b"y" * MAX_HEADER_BYTES)], 431, "headers-too-large"),
        ([(b"x", b"")] * (MAX_HEADER_BYTES // 5 + 1), 431, "headers-too-large"),
        ([(b"authorization", b"a"), (b"Authorization".lower(), b"b")], 400, "several-credentials"),
        ([(b"authorization", b"Bearer a, Bearer a")], 400, "several-credentials"),
        ([(b"authorization", b"Bearer a"), (b"authorization", b"")], 400, "several-credentials"),
        ([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], 400, "ambiguous-length"),
        ([(b"content-length", b"1"), (b"content-length", b"1")], 400, "ambiguous-length"),
    ],
)
async def test_bad_headers_are_refused_before_any_route(
    app: ASGIApp, headers: RawHeaders, status: int, code: str
):
    with capture_logs() as lines:
        answer = await send(app, "GET", "/whoami", headers=headers)
    assert (answer.status, answer.document["code"]) == (status, code)
    assert answer.headers["x-request-id"]
    assert (lines[-1]["route"], lines[-1]["code"]) == ("unmatched", code)


async def test_headers_just_within_the_limit_are_read(app: ASGIApp):
    allowed = MAX_HEADER_BYTES - len("/whoami") - len("x") - 4
    assert (await send(app, "GET", "/whoami", headers=[(b"x", b"y" * allowed)])).status == 200
    assert (await send(app, "GET", "/whoami", headers=[(b"x", b"y" * (allowed + 1))])).status == 431


async def test_a_long_query_counts_as_headers(app: ASGIApp):
    assert (await send(app, "GET", f"/whoami?{'q' * MAX_HEADER_BYTES}")).status == 431


async def test_a_caller_who_goes_away_before_the_end_of_the_body_is_no_fault(app: ASGIApp):
    with capture_logs() as lines:
        answer = await send(app, "POST", "/echo", headers=[JSON])
    assert (answer.status, answer.document["code"]) == (400, "incomplete-body")
    assert [line["event"] for line in lines] == ["request"]


async def test_a_caller_who_hangs_up_during_the_answer_is_no_fault(app: ASGIApp):
    with capture_logs() as lines:
        await send(app, "GET", "/stream", hangs_up=True)
    assert [line["log_level"] for line in lines] == ["info", "info"]
    assert lines[-1]["status"] == 200


async def test_a_request_that_is_cancelled_is_a_log_line_too(app: ASGIApp):
    with capture_logs() as lines, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await send(app, "GET", "/never")
    assert [(line["event"], line["status"]) for line in lines] == [("request", 499)]


async def test_requests_are_counted_by_template_method_and_status(
    app: ASGIApp, metrics: HttpMetrics
):
    for path in ("/raise/1", "/raise/2", "/raise/3", "/raise/0", "/nowhere"):
        await send(app, "GET", path)
    await send(app, "BREW", "/whoami")
    name = "http_server_request_duration_seconds_count"
    count = {
        (route, method, status): sample(metrics, name, route=route, method=method, status=status)
        for route, method, status in [
            ("/raise/{index}", "GET", "401"),
            ("/raise/{index}", "GET", "500"),
            ("unmatched", "GET", "404"),
            ("/whoami", "_OTHER", "405"),
        ]
    }
    assert list(count.values()) == [2.0, 1.0, 1.0, 1.0]
    rejected = "request_rejected_total"
    assert sample(metrics, rejected, reason="cluster-authorization-failed") == 1.0
    assert sample(metrics, rejected, reason="internal-error") == 1.0
    assert metrics.registry.get_sample_value("http_server_active_requests") == 0.0


async def test_accepted_credentials_are_counted(app: ASGIApp, metrics: HttpMetrics):
    for _ in range(2):
        await send(app, "GET", "/whoami")
    accepted = {"method": "bearer-token", "result": "accepted", "reason": ""}
    assert sample(metrics, "authn_total", **accepted) == 2.0


async def test_outcomes_and_decisions_are_counted_and_exposed(metrics: HttpMetrics):
    metrics.count_alterations(["applied", "applied", "refused"])
    metrics.authorizations.labels("ALTER_CONFIGS", "denied").inc()
    text, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    assert b'quota_alterations_total{verdict="applied"} 2.0' in text
    assert b'authz_total{operation="ALTER_CONFIGS",result="denied"} 1.0' in text


async def test_what_is_not_http_passes(app: ASGIApp):
    seen = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"} if not seen else {"type": "lifespan.shutdown"}

    async def keep(message: Any) -> None:
        seen.append(message["type"])

    await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, keep)
    assert seen == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_head_has_the_status_and_the_headers_of_get(service: FakeService):
    for path in ("/livez", "/quotas?filter=user", "/audit", "/docs", "/nowhere"):
        by_get = await service.get(path)
        credential = raw_headers(authorization="Bearer alice")
        by_head = await send(service.app, "HEAD", path, headers=credential)
        assert (by_head.status, by_head.headers.keys()) == (by_get.status, by_get.headers.keys())
        assert by_head.headers.get("etag") == by_get.headers.get("etag")


async def test_no_other_header_is_a_credential_or_a_method(service: FakeService):
    alice = raw_headers(authorization="Bearer alice")
    for name in ("x-http-method-override", "x-http-method", "x-method-override"):
        for method in (b"POST", b"DELETE", b"PUT"):
            headers = [*alice, (name.encode(), method)]
            assert (await send(service.app, "GET", "/quotas", headers=headers)).document[
                "quotas"
            ] == []
    for name, value in (
        ("x-principal", "User:alice"),
        ("cookie", "token=alice"),
        ("x-authorization", "Bearer alice"),
    ):
        headers = [(name.encode(), value.encode())]
        answer = await send(service.app, "GET", "/quotas", headers=headers)
        assert (answer.status, answer.document["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
