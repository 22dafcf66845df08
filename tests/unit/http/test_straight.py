"""The short way to a route tells the same as FastAPI's own."""

from typing import Any

import pytest
from starlette.routing import Match
from starlette.types import ASGIApp

from app.domain.errors import QuotaError
from app.http.application import create_application
from app.http.boundary import RequestBoundary
from app.http.plain_route import PlainRoute
from app.http.straight import Straight
from app.service.permissions.caller_admin import RefusedAtTheActError
from tests.testkit.fake_ports import FakeImage
from tests.unit.http.application import Answer, send
from tests.unit.http.fake_service import FakeService, no_services

REQUESTS = [
    ("GET", "/quotas/resolve?user=alice&client-id=etl", "alice"),
    ("GET", "/quotas/resolve?user=alice&explain=true", "alice"),
    ("GET", "/quotas/resolve?ip=10.0.0.1", "bob"),
    ("GET", "/quotas/resolve", "alice"),
    ("GET", "/quotas/resolve?user=%ff", "alice"),
    ("GET", "/quotas/resolve?nobody=1", "alice"),
    ("GET", "/quotas/resolve?user=alice", "stranger"),
    ("GET", "/quotas/resolve?user=alice", "denied"),
    ("GET", "/quotas/resolve?user=alice", None),
    ("GET", "/quotas/resolve/", "alice"),
    ("GET", "/quotas/nothing", "alice"),
    ("GET", "/quotas", "alice"),
    ("GET", "/quotas/alterations/unknown", "alice"),
    ("HEAD", "/quotas/resolve?user=alice", "alice"),
    ("PUT", "/quotas/resolve", "alice"),
    ("POST", "/quotas/resolve", "alice"),
    ("POST", "/quotas/alterations", "bob"),
    ("GET", "/version", None),
    ("GET", "/livez", None),
]


def both(service: FakeService) -> tuple[ASGIApp, ASGIApp]:
    boundary = service.app
    assert isinstance(boundary, RequestBoundary)
    straight = boundary._app
    assert isinstance(straight, Straight)
    return service.app, RequestBoundary(straight._app, service.metrics)


def told(answer: Answer) -> tuple[int, dict[str, str], Any]:
    headers = {name: text for name, text in answer.headers.items() if name != "x-request-id"}
    content = answer.document if answer.body else None
    if isinstance(content, dict):
        content.pop("request_id", None)
    headers.pop("content-length", None)
    return answer.status, headers, content


@pytest.mark.parametrize(("method", "path", "principal"), REQUESTS)
async def test_both_ways_answer_alike(method: str, path: str, principal: str | None) -> None:
    services = FakeService(), FakeService()
    headers = [] if principal is None else [(b"authorization", f"Bearer {principal}".encode())]
    answers = [
        told(await send(both(service)[way], method, path, headers=headers, body=[b""]))
        for way, service in enumerate(services)
    ]
    assert answers[0] == answers[1]
    for service in services:
        denials = [event for event in service.journal.log if event == "record_final"]
        assert len(denials) == (answers[0][0] == 403)


def test_the_short_way_leads_where_the_search_ends() -> None:
    app = create_application(no_services)
    ways = Straight(app)._routes
    assert ("GET", "/quotas/resolve") in ways
    for (method, path), route in ways.items():
        scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
        found = (one for one in app.routes if one.matches(scope)[0] is Match.FULL)
        assert next(found) is route
    plain = {route.path for route in app.routes if isinstance(route, PlainRoute)}
    assert plain - {path for _, path in ways} == {path for path in plain if "{" in path}


@pytest.mark.parametrize(
    ("error", "status", "recorded"),
    [
        (QuotaError("A fault."), 500, 0),
        (RefusedAtTheActError("No.", kafka_error="CLUSTER_AUTHORIZATION_FAILED"), 403, 1),
        (ValueError("a bug"), 500, 0),
    ],
)
async def test_errors_meet_the_handlers_of_the_application(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, recorded: int
) -> None:
    services = FakeService(), FakeService()

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(FakeImage, "image", fail)
    for way, service in enumerate(services):
        headers = [(b"authorization", b"Bearer alice")]
        app = both(service)[way]
        answer = await send(app, "GET", "/quotas/resolve?user=alice", headers=headers)
        assert answer.status == status
        assert answer.document["request_id"] == answer.headers["x-request-id"]
        assert len(service.journal.log) == recorded
        assert service.count("http_server_active_requests") == 0
