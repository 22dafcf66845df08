"""Every answer has its request id, its log line and its headers; every error is a problem."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from starlette.responses import Response, StreamingResponse
from structlog.testing import capture_logs

from app.domain.errors import ClusterAuthorizationError, QuotaError, UnauthenticatedError
from app.http.errors import InvalidTokenError
from app.http.middleware import MAX_HEADER_BYTES
from app.http.quotas import routes
from tests.unit.http.fake_service import ALTERATIONS, FakeService, RawHeaders, raw_headers, send

ERRORS = [
    RuntimeError("secret detail"),
    ClusterAuthorizationError("no", kafka_error="CLUSTER_AUTHORIZATION_FAILED"),
    UnauthenticatedError("who?"),
    InvalidTokenError("bad"),
]


JSON = (b"content-type", b"application/json")
ALICE = (b"authorization", b"Bearer alice")


async def raise_error(index: int) -> None:
    raise ERRORS[index]


async def broken_stream() -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"begun"
        raise QuotaError("too late")

    return StreamingResponse(chunks())


async def never() -> None:
    await asyncio.Event().wait()


@pytest.fixture
def service(service: FakeService) -> FakeService:
    for path, endpoint in (
        ("/raise/{index}", raise_error),
        ("/broken-stream", broken_stream),
        ("/never", never),
    ):
        service.application.add_api_route(path, endpoint, methods=["GET", "POST"])
    return service


@pytest.mark.parametrize("request_id", ["a", "A.b_c-9", "x" * 128])
async def test_a_good_request_id_is_echoed(service: FakeService, request_id: str):
    answer = await service.get("/nowhere", x_request_id=request_id)
    assert answer.headers["x-request-id"] == request_id
    assert answer.document["request_id"] == request_id


@pytest.mark.parametrize(
    "values", [[], [b""], [b"x" * 129], [b"a b"], [b"a\n"], [b"\xe4"], [b"a", b"b"]]
)
async def test_otherwise_a_request_id_is_made(service: FakeService, values: list[bytes]):
    headers = [(b"x-request-id", value) for value in values]
    answer = await send(service.app, "GET", "/nowhere", headers=headers)
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert answer.document["request_id"] == answer.headers["x-request-id"]


async def test_each_request_is_one_log_line(service: FakeService):
    with capture_logs() as lines:
        answer = await service.get("/me", x_request_id="r1")
        await service.get("/raise/1?token=hidden", x_request_id="r2")
    first, second = lines
    assert first.pop("duration_ms") >= 0
    assert first == {
        "log_level": "info",
        "event": "request",
        "method": "GET",
        "route": "/me",
        "status": 200,
        "request_id": "r1",
        "principal": "User:alice",
        "bytes": len(answer.body),
        "code": None,
    }
    assert (second["route"], second["status"]) == ("/raise/{index}", 403)
    assert second["code"] == "cluster-authorization-failed"
    assert "hidden" not in str(lines)


async def test_every_answer_has_the_security_headers(service: FakeService):
    for path in ("/me", "/nowhere", "/raise/0", "/quotas"):
        answer = await service.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        expected = "no-cache" if path == "/quotas" else "no-store"
        assert answer.headers["cache-control"] == expected


async def test_a_fault_is_a_problem_without_its_secrets(service: FakeService):
    with capture_logs() as lines:
        answer = await service.get("/raise/0", x_request_id="r1")
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
    service: FakeService, method: str, sent: str
):
    answer = await send(service.app, method, "/raise/0")
    assert (answer.status, answer.document["sent_to_cluster"]) == (500, sent)


async def test_a_stream_that_breaks_is_cut_off_and_not_completed(service: FakeService):
    with pytest.raises(RuntimeError), capture_logs() as lines:
        await service.get("/broken-stream")
    assert [line["event"] for line in lines] == ["fault", "request"]


async def test_an_unknown_path_is_a_problem(service: FakeService):
    answer = await service.get("/a%20b/\N{LATIN SMALL LETTER U WITH DIAERESIS}")
    assert (answer.status, answer.document["code"]) == (404, "not-found")
    assert answer.document["instance"] == "/a%2520b/%C3%BC"


async def test_head_has_the_status_and_the_headers_of_get(service: FakeService):
    for path in ("/livez", "/quotas?filter=user", "/audit", "/docs", "/nowhere"):
        with capture_logs() as lines:
            by_get = await service.get(path)
            by_head = await send(service.app, "HEAD", path, headers=[ALICE])
        assert (by_head.status, by_head.headers.keys()) == (by_get.status, by_get.headers.keys())
        assert by_head.headers.get("etag") == by_get.headers.get("etag")
        first, line = lines
        assert (line["method"], line["route"]) == ("HEAD", first["route"])
        assert line["bytes"] == 0, "the server sends no content"


AUTHORIZATION, LENGTH = b"authorization", b"content-length"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([(b"x", b"y" * MAX_HEADER_BYTES)], 431, "headers-too-large"),
        ([(b"x", b"")] * (MAX_HEADER_BYTES // 5 + 1), 431, "headers-too-large"),
        ([(AUTHORIZATION, b"a"), (AUTHORIZATION, b"b")], 400, "several-credentials"),
        ([(AUTHORIZATION, b"Bearer a, Bearer a")], 400, "several-credentials"),
        ([(AUTHORIZATION, b"Bearer a"), (AUTHORIZATION, b"")], 400, "several-credentials"),
        ([(LENGTH, b"1"), (b"transfer-encoding", b"chunked")], 400, "ambiguous-length"),
        ([(LENGTH, b"1"), (LENGTH, b"1")], 400, "ambiguous-length"),
    ],
)
async def test_bad_headers_are_refused_before_any_route(
    service: FakeService, headers: RawHeaders, status: int, code: str
):
    with capture_logs() as lines:
        answer = await send(service.app, "GET", "/version", headers=headers)
    assert (answer.status, answer.document["code"]) == (status, code)
    assert answer.headers["x-request-id"]
    assert (lines[-1]["route"], lines[-1]["code"]) == ("unmatched", code)


async def test_headers_just_within_the_limit_are_read(service: FakeService):
    allowed = MAX_HEADER_BYTES - len("/version") - len("x") - 4
    assert (await service.get("/version", None, x="y" * allowed)).status == 200
    assert (await service.get("/version", None, x="y" * (allowed + 1))).status == 431


async def test_a_long_query_counts_as_headers(service: FakeService):
    assert (await service.get(f"/version?{'q' * MAX_HEADER_BYTES}")).status == 431


async def test_a_caller_who_goes_away_before_the_end_of_the_body_is_no_fault(service: FakeService):
    with capture_logs() as lines:
        answer = await send(service.app, "POST", ALTERATIONS, headers=[ALICE, JSON])
    assert (answer.status, answer.document["code"]) == (400, "incomplete-body")
    assert [line["event"] for line in lines] == ["request"]


async def test_a_caller_who_hangs_up_during_a_stream_is_no_fault(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(routes, "_LARGEST_WHOLE", -1)
    with capture_logs() as lines:
        await send(service.app, "GET", "/quotas", headers=[ALICE], hangs_up=True)
    assert [line["log_level"] for line in lines] == ["info", "info"]
    assert lines[-1]["status"] == 200


async def test_a_request_that_is_cancelled_is_a_log_line_too(service: FakeService):
    with capture_logs() as lines, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await service.get("/never")
    assert [(line["event"], line["status"]) for line in lines] == [("request", 499)]


async def test_requests_are_counted_by_template_method_and_status(service: FakeService):
    for path in ("/raise/1", "/raise/2", "/raise/3", "/raise/0", "/nowhere"):
        await service.get(path)
    await send(service.app, "BREW", "/me")
    for route, method, status, count in [
        ("/raise/{index}", "GET", "401", 2),
        ("/raise/{index}", "GET", "500", 1),
        ("unmatched", "GET", "404", 1),
        ("/me", "_OTHER", "405", 1),
    ]:
        labels = {"route": route, "method": method, "status": status}
        assert service.count("http_server_request_duration_seconds_count", **labels) == count
    for reason in ("cluster-authorization-failed", "internal-error"):
        assert service.count("request_rejected_total", reason=reason) == 1
    assert service.count("http_server_active_requests") == 0


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
