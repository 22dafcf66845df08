"""What browsers get: the page, its files and its screens; and what programs get instead."""

import gzip
import re
from importlib.resources import files

from app.domain.errors import NotSentError
from app.http.pages import page_assets
from app.http.problem_catalog import PROBLEMS
from app.http.rate_limits import Limits
from tests.unit.http.fake_service import FakeService

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


async def test_the_page_is_limited_like_other_public_routes():
    service = FakeService(Limits(0, 0, 0, 0, public_per_s=1.0))
    statuses = {(await service.get("/ui/docs.js", None)).status for _ in range(200)}
    assert statuses == {200, 429}
    assert (await service.get("/", None)).status == 200
