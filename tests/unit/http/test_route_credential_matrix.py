"""Each route of the live table with each kind of credential: who gets in, before what is read."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from app.http.alterations.routes import may_alter_these
from app.http.application import create_application
from app.http.authentication.bearer import Bearer, BearerTokens
from app.http.guards import PUBLIC as FOR_EVERYBODY
from app.http.guards import (
    any_caller,
    any_caller_of_service,
    everybody,
    everybody_with_any_query,
    may_alter,
    may_describe,
    may_follow_audit,
    may_list_scram,
    may_read_audit,
)
from app.http.query_params import QueryParameters, StrictQuery
from app.http.quotas.entity import may_alter_entity
from app.http.route import GuardedRoute, UndeclaredRouteError, refuse_undeclared
from tests.unit.http.fake_service import Answer, FakeService, no_services, send

PUBLIC: Final = {
    "/livez",
    "/readyz",
    "/version",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/",
    "/ui/{name}",
    "/ui/sign-in.json",
    "/favicon.ico",
    "/problems/",
    "/problems/{code}",
}
"""What may answer without a credential; nothing else may, ever."""

GUARDS: Final = {
    everybody: "everybody",
    everybody_with_any_query: "everybody",
    any_caller: "any caller",
    any_caller_of_service: "any caller",
    may_describe: "describe",
    may_list_scram: "scram",
    may_alter: "alter",
    may_alter_these: "alter",
    may_alter_entity: "alter",
    may_read_audit: "audit",
    may_follow_audit: "audit",
}

GOOD_UNTIL: Final = {"expired": "2020-01-01T00:00:00Z"}
PRINCIPALS: Final = {
    "describer": "User:bob",
    "alterer": "User:alice",
    "auditor": "User:auditor",
    "denied": "User:carol",
    "expired": "User:alice",
}
CREDENTIALS: Final[Mapping[str, list[str]]] = {
    "none": [],
    "malformed": ["Bearer"],
    "of another kind": ["Digest username=alice"],
    "unknown token": ["Bearer nobody-knows-it"],
    "two": ["Bearer alterer", "Bearer alterer"],
    **{name: [f"Bearer {name}"] for name in PRINCIPALS},
}

IN, UNAUTHENTICATED, FORBIDDEN, UNREADABLE = "in", 401, 403, 400

NOBODY: Final = {"none", "malformed", "of another kind", "unknown token", "expired"}
MAY: Final[Mapping[str, set[str]]] = {
    "any caller": {"describer", "alterer", "auditor", "denied"},
    "describe": {"describer", "alterer"},
    "scram": {"describer"},
    "alter": {"alterer"},
    "audit": {"describer", "alterer", "auditor"},
}


def expected(guard: str, credential: str) -> str | int:
    if guard == "everybody":
        return IN
    if credential == "two":
        return UNREADABLE
    if credential in NOBODY:
        return UNAUTHENTICATED
    return IN if credential in MAY[guard] else FORBIDDEN


@dataclass
class WithTokens(FakeService):
    """The application as in the unit tests, with a real file of tokens."""

    tokens: Path = field(default_factory=Path)

    def _services(self) -> Any:
        authenticators = [Bearer(BearerTokens(self.tokens))]
        return replace(super()._services(), authenticators=authenticators)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> FakeService:
    path = tmp_path_factory.mktemp("matrix") / "tokens.json"
    entries = [
        {
            "principal": principal,
            "token_sha256": hashlib.sha256(name.encode()).hexdigest(),
            "expires_at": GOOD_UNTIL.get(name, "2999-01-01T00:00:00Z"),
        }
        for name, principal in PRINCIPALS.items()
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")
    return WithTokens(tokens=path)


def live_routes() -> list[tuple[str, str, str]]:
    """Return method, path and guard of each route."""
    table = create_application(no_services).routes
    return [
        (method, route.path, GUARDS[route.guard])
        for route in table
        if isinstance(route, GuardedRoute)
        for method in sorted(route.methods)
    ]


ROUTES = live_routes()
BY_HEAD = [("HEAD", path, guard) for method, path, guard in ROUTES if method == "GET"]
"""What is answered like GET must be guarded like it."""


async def ask(service: FakeService, method: str, path: str, credentials: list[str]) -> Answer:
    target = path.format_map({"name": "swagger-ui.css", "code": "not-found"} | IDS)
    headers = [
        (b"content-type", b"application/json"),
        *((b"authorization", text.encode()) for text in credentials),
    ]
    query = "nonsense=%FF"
    return await send(service.app, method, f"{target}?{query}", headers=headers, body=[b"{"])


IDS = {
    "entity_key": "eyJ1c2VyIjoiYWxpY2UifQ",
    "alteration_id": "none",
    "bucket_id": "1",
    "run_id": "none",
    "plan_id": "none",
}


def test_the_table_has_every_route_and_the_public_routes_alone() -> None:
    table = create_application(no_services).routes
    assert len(ROUTES) == len(table)
    assert {path for _, path, guard in ROUTES if guard == "everybody"} == PUBLIC
    assert len(ROUTES) > len(PUBLIC)


async def test_who_gets_in(service: FakeService, subtests: pytest.Subtests) -> None:
    for (method, path, guard), credential in itertools.product(ROUTES + BY_HEAD, CREDENTIALS):
        with subtests.test(f"{method} {path}: {credential}"):
            asked = await ask(service, method, path, CREDENTIALS[credential])
            verdict = expected(guard, credential)
            if verdict == IN:
                assert asked.status not in {401, 403}
                continue
            assert asked.status == verdict
            assert asked.document["sent_to_cluster"] == "no"
            for_the_record = {("POST", "/quotas/alterations"), ("PUT", "/quotas/{entity_key}")}
            assert asked.has_read == (verdict == FORBIDDEN and (method, path) in for_the_record)
            assert set(service.log) <= {"record_final"}


async def test_no_other_method_gets_in(service: FakeService, subtests: pytest.Subtests) -> None:
    answered = {(method, path) for method, path, _ in ROUTES + BY_HEAD}
    methods = ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "X-ODD")
    paths = {path for _, path, _ in ROUTES}
    for method, path in sorted({*itertools.product(methods, paths)} - answered):
        with subtests.test(f"{method} {path}"):
            asked = await ask(service, method, path, CREDENTIALS["alterer"])
            allowed = {name for name, at in answered if at == path}
            assert (asked.status, set(asked.headers["allow"].split(", "))) == (405, allowed)


async def test_no_other_spelling_gets_in(service: FakeService, subtests: pytest.Subtests) -> None:
    paths = (
        "/quota /quotas/ //quotas /QUOTAS /quotas//alterations /quotas/../quotas /quotas%2Fresolve "
        "/quotas;strict=true /quotas/alterations/ /docs/ /docs/../app /ui /ui/nothing.js "
        "/ui/../pages.py /problems /audit/x /.env /x /\0 /\ud800"
    )
    for path in paths.split(" "):
        with subtests.test(ascii(path)):
            for credential in ("none", "alterer"):
                asked = await ask(service, "GET", path, CREDENTIALS[credential])
                assert (asked.status, asked.document["code"]) == (404, "not-found")


async def undeclared(_: Request) -> Response:
    return PlainTextResponse("open")


async def declared() -> Response:
    return PlainTextResponse("guarded")


def declared_on_another_kind() -> BaseRoute:
    return APIRoute("/open", declared, dependencies=FOR_EVERYBODY)


def mounted() -> FastAPI:
    inner = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    inner.add_api_route("/hidden", undeclared)
    return inner


def included() -> BaseRoute:
    outer, inner = APIRouter(), APIRouter()
    inner.add_api_route("/hidden", undeclared, response_class=PlainTextResponse)
    outer.include_router(inner)
    return outer.routes[0]


async def test_an_application_with_an_undeclared_route_does_not_start(
    subtests: pytest.Subtests,
) -> None:
    for route, message in [
        (Route("/open", undeclared), "/open"),
        (declared_on_another_kind(), "/open"),
        (Mount("/below", mounted()), "/below"),
        (included(), "not of the kind"),
    ]:
        with subtests.test(message=message):
            app = create_application(no_services)
            app.router.routes.append(route)
            with pytest.raises(UndeclaredRouteError, match=message):
                async with app.router.lifespan_context(app):
                    pytest.fail("it started")


def test_a_route_of_ours_cannot_even_be_made_undeclared() -> None:
    router = APIRouter(route_class=GuardedRoute)
    with pytest.raises(UndeclaredRouteError, match="undeclared declares neither"):
        router.add_api_route("/open", undeclared)
    before = Depends(StrictQuery(QueryParameters))
    with pytest.raises(UndeclaredRouteError, match="declared declares neither"):
        router.add_api_route("/late", declared, dependencies=[before, Depends(may_describe)])
    router.add_api_route("/guarded", declared, dependencies=[Depends(may_describe)])
    refuse_undeclared(router.routes)
