"""The application: its routes, strictness around them, errors as problem documents."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from app.domain.errors import NotFoundError, QuotaError
from app.http import audit, audit_stream, clusters, operation, pages, users
from app.http.alterations import routes as alterations
from app.http.alterations import temporary
from app.http.analytics import advice
from app.http.analytics import routes as analytics
from app.http.guards import CLUSTERS, ServedClusters, actor_of, is_of_service, services_of
from app.http.middleware import (
    ON_OPERATIONS_PORT,
    RequestMiddleware,
    action_of,
    context_of,
    error_response,
    fault_response,
)
from app.http.openapi import describe
from app.http.plans import routes as plans
from app.http.quotas import budgets, entity, gauges
from app.http.quotas import routes as quotas
from app.http.resolve import routes as resolve
from app.http.route import refuse_undeclared
from app.metrics import Metrics
from app.service.auth.actors import RefusedAtTheActError
from app.service.auth.denials import DeniedAttempt
from app.service.runtime.tasks import CLUSTER, off_loop

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_NOWHERE: Final = "Nothing is at this path; /docs lists the routes."


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error a problem document, faults included."""
    for kind in (QuotaError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _on_error)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RefusedAtTheActError):
        await _record_attempt(request, error)
    match error:
        case QuotaError():
            number = len(error.results or ()) + len(error.violations)
            return await off_loop(number, error_response, request, error)
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            return error_response(request, NotFoundError(_NOWHERE), error.headers)
        case HTTPException(status_code=HTTPStatus.METHOD_NOT_ALLOWED):
            detail = "This path does not take that method; use one of the header Allow."
            allowed = {"Allow": ", ".join(_allowed_methods(request))}
            return error_response(request, QuotaError(detail, code="method-not-allowed"), allowed)
    return fault_response(request)


async def _record_attempt(request: Request, error: RefusedAtTheActError) -> None:
    """Record the attempt of a caller who was judged to be allowed, and is refused by a broker."""
    context = context_of(request)
    action = action_of(request)
    attempt = DeniedAttempt(context.request_id, action, error.evidence, error.read)
    await services_of(request).denials.record(actor_of(request).caller, error, attempt)


def _allowed_methods(request: Request) -> list[str]:
    """Return every method of the path; starlette names those of one route only."""
    routes = request.app.router.routes
    of_path = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in of_path for method in route.methods}
    if "GET" in methods:
        methods.add("HEAD")  # the middleware reads it as GET
    return [method for method in _METHODS if method in methods]


_FEATURES: Final = (
    resolve,
    alterations,
    temporary,
    quotas,
    budgets,
    entity,
    gauges,
    plans,
    audit,
    audit_stream,
    users,
    analytics,
    advice,
    operation,
    pages,
    clusters,
)

EVERY_S: Final = 0.5


@asynccontextmanager
async def observed_lag(
    observe: Callable[[float], None], *, every_s: float = EVERY_S
) -> AsyncIterator[None]:
    """Measure while the block runs; ``observe`` receives the lag in seconds."""

    async def measure() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(every_s)
            observe(max(0.0, time.monotonic() - began - every_s))

    task = asyncio.create_task(measure())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


Lifespan = Callable[[], AbstractAsyncContextManager[ServedClusters]]


def create_application(lifespan: Lifespan) -> FastAPI:
    """Build the application.

    Args:
        lifespan: Opens the services when the application starts and closes them when it stops.
    """

    @asynccontextmanager
    async def open_services(app: FastAPI) -> AsyncIterator[None]:
        refuse_undeclared(app.routes)
        async with lifespan() as served:
            app.state.clusters = served
            async with observed_lag(served.metrics.observe_loop_lag):
                yield

    app = FastAPI(
        title="Kafka quota service",
        version=version("kafka-quota-service"),
        lifespan=open_services,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for feature in _FEATURES:
        # Not include_router, which would match the path of each request twice.
        app.router.routes.extend(feature.router.routes)
    install_problem_handlers(app)
    describe(app)
    return app


def create_asgi(
    lifespan: Lifespan,
    metrics: Metrics,
    *,
    has_operations_port: bool = False,
    cors_origins: Sequence[str] = (),
) -> ASGIApp:
    """Return the application behind its limits, request ids and access log."""
    app = choose_cluster(create_application(lifespan))
    if has_operations_port:
        app = _separate_operations(app)
    return RequestMiddleware(app, metrics, cors_origins)


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document; needs no settings and connects to nothing."""
    return create_application(_never_opened).openapi()


def _never_opened() -> NoReturn:
    message = "this application only describes itself"
    raise RuntimeError(message)


def choose_cluster(app: FastAPI) -> ASGIApp:
    """Return the application with its clusters below ``/clusters/{name}``.

    Where the path names one, that part becomes the ``root_path``, which Starlette leaves out where
    it looks for the route. Source: ASGI's scope, https://starlette.dev/routing/.
    """

    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _choose(scope, app.state.clusters)
        await app(scope, receive, send)

    return chosen


def _choose(scope: Scope, served: ServedClusters) -> None:
    """Note in the scope which cluster is asked.

    Raises:
        NotFoundError: The path is of the service, and stands below a cluster.
    """
    state, name = scope.setdefault("state", {}), served.default
    below = cluster_path(scope)
    if below is not None and below.removeprefix(f"{CLUSTERS}/") in served.services:
        name = below.removeprefix(f"{CLUSTERS}/")
        if scope["path"] == below:
            scope["path"] += "/"
        scope["root_path"] = below
        if is_of_service(scope["path"].removeprefix(below)):
            raise NotFoundError(_NOWHERE)
    state["services"] = served.services[name]
    if not is_of_service(scope["path"]) or scope["root_path"]:
        state["cluster"] = name
        CLUSTER.set(name)


def cluster_path(scope: Scope) -> str | None:
    """Return the part of the path that names a cluster; null where none does.

    The name is one segment of the path as it was sent: ``prod%2Fquotas`` names no cluster ``prod``.
    """
    path: str = scope["path"]
    segments = scope["raw_path"].split(b"/", 3)
    if not path.startswith(f"{CLUSTERS}/") or len(segments) <= _SEGMENT:
        return None
    below = f"{CLUSTERS}/{unquote(segments[_SEGMENT].decode('ascii', 'replace'))}"
    return below if path == below or path.startswith(f"{below}/") else None


_SEGMENT: Final = 2


_OPERATIONS_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics"})


def _separate_operations(app: ASGIApp) -> ASGIApp:
    """Serve probes and metrics on the port for operations, and everything else on the others."""

    async def separated(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_operation = scope["path"] in _OPERATIONS_PATHS
            if is_operation != scope["state"].get(ON_OPERATIONS_PORT, False):
                raise NotFoundError(_NOWHERE)
        await app(scope, receive, send)

    return separated
