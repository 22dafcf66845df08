"""What browsers get: the page, its files and its screens; and what programs get instead."""

import gzip
import re
from importlib.resources import files

import pytest

from app.domain.errors import NotSentError
from app.http.pages import page_assets
from app.http.problem_catalog import PROBLEMS
from app.http.rate_limits import Limits
from tests.unit.http.application import Answer, raw_headers, send
from tests.unit.http.fake_service import FakeService

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def get(service: FakeService, path: str, **headers: str) -> Answer:
    return await send(service.app, "GET", path, headers=raw_headers(**headers))


async def test_a_browser_gets_the_page_and_a_program_the_links(service: FakeService):
    page = await get(service, "/", accept=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.body == (files("app.http") / "ui" / "index.html").read_bytes()
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}, {"accept": "image/png"}):
        answer = await get(service, "/", **headers)
        assert answer.document["service"] == "kafka-quota-service"
        assert answer.document["cluster_id"] == await service.brokers.cluster_id()
        for path in answer.document["links"].values():
            assert (await get(service, path)).status in {200, 401}
    assert "accept" in page.headers["vary"].lower()
    assert "accept" in answer.headers["vary"].lower()


async def test_without_a_broker_the_cluster_is_null(service: FakeService):
    async def nobody_answers(**_: float) -> str:
        raise NotSentError("No broker answers.")

    service.brokers.cluster_id = nobody_answers
    assert (await get(service, "/")).document["cluster_id"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/ui/",
        "/ui/quotas",
        "/ui/entity/eyJ1c2VyIjoiYWxpY2UifQ",
        "/ui/resolve?user=alice&client-id=a.b",
    ],
)
async def test_each_screen_is_the_page(service: FakeService, path: str):
    start, screen = await get(service, "/", accept=BROWSER), await get(service, path)
    assert (screen.status, screen.body) == (200, start.body)


async def test_no_script_and_no_other_host_is_let_into_the_page(service: FakeService):
    for path in ("/ui/quotas", "/docs"):
        page = await get(service, path)
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
        plain = await get(service, f"/ui/{name}")
        assert (plain.status, plain.body) == (200, asset.content)
        if name.endswith(".css"):
            assert not re.search(rb"(url|@import)\s*\(?['\"]?(https?:)?//", plain.body)
        assert "content-encoding" not in plain.headers
        packed = await get(service, f"/ui/{name}", accept_encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == asset.content
        assert packed.headers["etag"] != plain.headers["etag"]
        again = await get(service, f"/ui/{name}", if_none_match=plain.headers["etag"])
        assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        *(
            f"/ui/{name}"
            for name in ("nothing.js", "../pages.py", "vendor/nothing.js", "index.htm.l")
        ),
        *(f"/problems/{code}" for code in ("nothing", "<script>", "\0")),
    ],
)
async def test_there_is_no_other_file(service: FakeService, path: str):
    answer = await get(service, path)
    assert b"<script>" not in answer.body
    assert (answer.status, answer.document["code"]) == (404, "not-found")


async def test_browsers_find_an_icon(service: FakeService):
    icon = await get(service, "/favicon.ico")
    assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")


async def test_the_index_links_every_problem(service: FakeService):
    index = await get(service, "/problems/")
    links = re.findall(r'href="(/problems/[^"]*)"', index.body.decode())
    assert links == [f"/problems/{code}" for code in sorted(PROBLEMS)]
    for link in links:
        assert (await get(service, link)).status == 200


async def test_the_page_is_limited_like_other_public_routes():
    service = FakeService(Limits(0, 0, 0, 0, public_per_s=1.0))
    statuses = {(await get(service, "/ui/docs.js")).status for _ in range(200)}
    assert statuses == {200, 429}
    assert (await get(service, "/")).status == 200
