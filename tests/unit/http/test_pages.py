"""What browsers get: the page, its files and its screens; and what programs get instead.

Pages of other origins: the preflight, what they may send, and what they can read.
"""

import gzip
import re
from importlib.resources import files

import pytest

from app.domain.errors import NotSentError
from app.http.pages import page_assets
from app.http.problem_catalog import PROBLEMS
from tests.unit.http.fake_service import Answer, FakeService, raw_headers, send

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def test_a_browser_gets_the_page_and_a_program_the_links(service: FakeService):
    page = await service.get("/", None, accept=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.body == (files("app.http") / "ui" / "index.html").read_bytes()
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}, {"accept": "image/png"}):
        answer = await service.get("/", None, **headers)
        assert answer.document["service"] == "kafka-quota-service"
        assert answer.document["cluster_id"] == await service.brokers.cluster_id()
        for path in answer.document["links"].values():
            assert (await service.get(path, None)).status in {200, 401}
    assert "accept" in page.headers["vary"].lower()
    assert "accept" in answer.headers["vary"].lower()


async def test_without_a_broker_the_cluster_is_null(service: FakeService):
    async def nobody_answers(**_: float) -> str:
        raise NotSentError("No broker answers.")

    service.brokers.cluster_id = nobody_answers
    assert (await service.get("/", None)).document["cluster_id"] is None


async def test_each_screen_is_the_page(service: FakeService):
    start = await service.get("/", None, accept=BROWSER)
    for name in ("", "quotas", "entity/eyJ1c2VyIjoiYWxpY2UifQ", "resolve?user=alice&client-id=a.b"):
        screen = await service.get(f"/ui/{name}", None)
        assert (screen.status, screen.body) == (200, start.body)


async def test_no_script_and_no_other_host_is_let_into_the_page(service: FakeService):
    for path in ("/ui/quotas", "/docs"):
        page = await service.get(path, None)
        security = page.headers["content-security-policy"]
        assert security.startswith("default-src 'self';")
        assert "script-src" not in security
        assert "frame-ancestors 'none'" in security
        assert not re.search(r"<script(?![^>]* src=)", page.body.decode())
        assert "//" not in page.body.decode()


async def test_every_file_is_sent_from_memory_with_its_tag(service: FakeService):
    assets = page_assets()
    assert len(assets) > 5
    for name, asset in assets.items():
        plain = await service.get(f"/ui/{name}", None)
        assert (plain.status, plain.body) == (200, asset.content)
        if name.endswith(".css"):
            assert not re.search(rb"(url|@import)\s*\(?['\"]?(https?:)?//", plain.body)
        assert "content-encoding" not in plain.headers
        packed = await service.get(f"/ui/{name}", None, accept_encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == asset.content
        assert packed.headers["etag"] != plain.headers["etag"]
        again = await service.get(f"/ui/{name}", None, if_none_match=plain.headers["etag"])
        assert (again.status, again.body) == (304, b"")


async def test_there_is_no_other_file(service: FakeService):
    files = ("nothing.js", "../pages.py", "vendor/nothing.js", "index.htm.l")
    codes = ("nothing", "<script>", "\0")
    for path in (*(f"/ui/{name}" for name in files), *(f"/problems/{code}" for code in codes)):
        answer = await service.get(path, None)
        assert b"<script>" not in answer.body
        assert (answer.status, answer.document["code"]) == (404, "not-found")


async def test_browsers_find_an_icon(service: FakeService):
    icon = await service.get("/favicon.ico", None)
    assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")


async def test_the_index_links_every_problem(service: FakeService):
    index = await service.get("/problems/", None)
    links = re.findall(r'href="(/problems/[^"]*)"', index.body.decode())
    assert links == [f"/problems/{code}" for code in sorted(PROBLEMS)]
    for link in links:
        assert (await service.get(link, None)).status == 200


PORTAL = "https://portal.example"


@pytest.fixture
def portal() -> FakeService:
    """A service whose answers pages of the portal may read."""
    return FakeService(cors_origins=(PORTAL, "https://other.example:8443"))


async def preflight(service: FakeService, origin: str, method: str, headers: str = "") -> Answer:
    wanted = {"access_control_request_headers": headers} if headers else {}
    raw = raw_headers(origin=origin, access_control_request_method=method, **wanted)
    return await send(service.app, "OPTIONS", "/quotas/alterations", headers=raw)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_preflight_is_answered_without_a_credential(portal: FakeService, method: str):
    wanted = "authorization,content-type,idempotency-key,if-match,supersede,x-request-id"
    answer = await preflight(portal, PORTAL, method, wanted)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == PORTAL
    assert method in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers
    assert "Origin" in answer.headers["vary"]
    assert answer.headers["x-request-id"]
    assert not portal.log


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
    portal: FakeService, origin: str, method: str, headers: str
):
    answer = await preflight(portal, origin, method, headers)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.document["code"] == "preflight-refused"
    assert answer.document["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers.get("access-control-allow-origin") in {None, PORTAL}
    if origin != PORTAL:
        assert "access-control-allow-origin" not in answer.headers


async def test_a_page_can_read_answers_and_errors(portal: FakeService):
    alice = {"authorization": "Bearer alice"}
    for headers, path, status in [
        (alice, "/quotas", 200),
        (alice, "/quotas?nonsense=1", 400),
        ({}, "/quotas", 401),
        ({"authorization": "Bearer carol"}, "/quotas", 403),
        (alice, "/nowhere", 404),
        ({**alice, "x-long": "x" * 40_000}, "/quotas", 431),
    ]:
        answer = await portal.get(path, None, origin=PORTAL, **headers)
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


async def test_a_page_can_read_a_fault(portal: FakeService):
    async def fault(**_: float) -> str:
        raise ZeroDivisionError

    portal.brokers.cluster_id = fault
    answer = await portal.get("/", None, origin=PORTAL)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (500, PORTAL)


async def test_no_other_page_can_read_anything(portal: FakeService):
    headers = {"authorization": "Bearer alice", "origin": "https://evil.example"}
    answer = await portal.get("/quotas", None, **headers)
    assert "access-control-allow-origin" not in answer.headers
    assert "Origin" in answer.headers["vary"]  # so that no cache gives it to a page that may


async def test_without_origins_there_is_no_cors():
    service = FakeService()
    answer = await preflight(service, PORTAL, "GET")
    assert answer.status == 405
    answer = await service.get("/version", None, origin=PORTAL)
    assert not any(name.startswith("access-control") for name in answer.headers)
