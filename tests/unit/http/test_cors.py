"""Pages of other origins: the preflight, what they may send, and what they can read."""

import pytest

from tests.unit.http.fake_service import Answer, FakeService, raw_headers, send

PORTAL = "https://portal.example"


@pytest.fixture
def service() -> FakeService:
    return FakeService(cors_origins=(PORTAL, "https://other.example:8443"))


async def ask(service: FakeService, method: str, path: str, **headers: str) -> Answer:
    return await send(service.app, method, path, headers=raw_headers(**headers))


async def preflight(service: FakeService, origin: str, method: str, headers: str = "") -> Answer:
    return await ask(
        service,
        "OPTIONS",
        "/quotas/alterations",
        origin=origin,
        access_control_request_method=method,
        **({"access_control_request_headers": headers} if headers else {}),
    )


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_preflight_is_answered_without_a_credential(service: FakeService, method: str):
    wanted = "authorization,content-type,idempotency-key,if-match,supersede,x-request-id"
    answer = await preflight(service, PORTAL, method, wanted)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == PORTAL
    assert method in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers
    assert "Origin" in answer.headers["vary"]
    assert answer.headers["x-request-id"]
    assert not service.log


@pytest.mark.parametrize(
    ("origin", "method", "headers"),
    [
        ("https://evil.example", "GET", ""),
        ("https://portal.example.evil.example", "GET", ""),
        ("http://portal.example", "GET", ""),
        ("null", "GET", ""),
        (PORTAL, "PATCH", ""),
        (PORTAL, "GET", "x-forwarded-for"),
    ],
)
async def test_any_other_preflight_is_refused(
    service: FakeService, origin: str, method: str, headers: str
):
    answer = await preflight(service, origin, method, headers)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.document["code"] == "preflight-refused"
    assert answer.document["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers.get("access-control-allow-origin") in {None, PORTAL}
    if origin != PORTAL:
        assert "access-control-allow-origin" not in answer.headers


async def test_a_page_can_read_answers_and_errors(service: FakeService):
    alice = {"authorization": "Bearer alice"}
    for headers, path, status in [
        (alice, "/quotas", 200),
        (alice, "/quotas?nonsense=1", 400),
        ({}, "/quotas", 401),
        ({"authorization": "Bearer carol"}, "/quotas", 403),
        (alice, "/nowhere", 404),
        ({**alice, "x-long": "x" * 40_000}, "/quotas", 431),
    ]:
        answer = await ask(service, "GET", path, origin=PORTAL, **headers)
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == PORTAL
        exposed = set(answer.headers["access-control-expose-headers"].split(", "))
        assert exposed >= {
            "ETag",
            "Location",
            "X-Request-Id",
            "Idempotent-Replayed",
            "Retry-After",
            "X-Next-Page-Token",
        }


async def test_a_page_can_read_a_fault(service: FakeService):
    async def fault(**_: float) -> str:
        raise ZeroDivisionError

    service.brokers.cluster_id = fault
    answer = await ask(service, "GET", "/", origin=PORTAL)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (500, PORTAL)


async def test_no_other_page_can_read_anything(service: FakeService):
    headers = {"authorization": "Bearer alice", "origin": "https://evil.example"}
    answer = await ask(service, "GET", "/quotas", **headers)
    assert "access-control-allow-origin" not in answer.headers
    assert "Origin" in answer.headers["vary"]  # so that no cache gives it to a page that may


async def test_without_origins_there_is_no_cors():
    service = FakeService()
    answer = await preflight(service, PORTAL, "GET")
    assert answer.status == 405
    answer = await ask(service, "GET", "/version", origin=PORTAL)
    assert not any(name.startswith("access-control") for name in answer.headers)
