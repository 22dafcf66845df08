"""The application: routes, strictness around them, errors as problem documents."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from app.domain.errors import NotFoundError
from app.http import audit, operation, problem_pages, users
from app.http.alterations import routes as alterations
from app.http.analytics import routes as analytics
from app.http.boundary import RequestBoundary, RequestLog, log_request
from app.http.docs_page import install_docs
from app.http.loop_lag import observed_lag
from app.http.metrics import HttpMetrics
from app.http.openapi import describe
from app.http.plans import routes as plans
from app.http.problem_handlers import install_problem_handlers
from app.http.quotas import routes as quotas
from app.http.request_context import ON_OPERATIONS_PORT
from app.http.resolve import routes as resolve
from app.http.route import refuse_undeclared
from app.http.services import Services

_FEATURES: Final = (
    resolve,
    alterations,
    quotas,
    plans,
    audit,
    users,
    analytics,
    operation,
    problem_pages,
)

Lifespan = Callable[[], AbstractAsyncContextManager[Services]]


def create_application(lifespan: Lifespan) -> FastAPI:
    """Build the application.

    Args:
        lifespan: Opens the services when the application starts and closes them when it stops.
    """

    @asynccontextmanager
    async def opened(app: FastAPI) -> AsyncIterator[None]:
        refuse_undeclared(app.routes)
        async with lifespan() as services:
            app.state.services = services
            async with observed_lag(services.metrics.observe_loop_lag):
                yield

    app = FastAPI(
        title="Kafka quota service",
        version=version("kafka-quota-service"),
        lifespan=opened,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for feature in _FEATURES:
        # Not include_router, which would match the path of each request twice.
        app.router.routes.extend(feature.router.routes)
    install_docs(app)
    install_problem_handlers(app)
    describe(app)
    return app


def create_asgi(
    lifespan: Lifespan,
    metrics: HttpMetrics,
    log: RequestLog = log_request,
    *,
    has_operations_port: bool = False,
) -> ASGIApp:
    """Return the application behind its limits, request ids and access log.

    Args:
        lifespan: Opens the services.
        metrics: Count each request.
        log: Writes the line of each request.
        has_operations_port: Serve probes and metrics there alone.
    """
    app = create_application(lifespan)
    if has_operations_port:
        return RequestBoundary(OperationsApart(app), metrics, log)
    return within_boundary(app, metrics, log)


def within_boundary(app: FastAPI, metrics: HttpMetrics, log: RequestLog = log_request) -> ASGIApp:
    """Return an application behind what every request passes."""
    return RequestBoundary(app, metrics, log)


_OPERATIONS_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics"})


class OperationsApart:
    """Serves probes and metrics on the port for operations, and everything else on the others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request where it belongs."""
        if scope["type"] == "http":
            belongs_there = scope["path"] in _OPERATIONS_PATHS
            if belongs_there != scope["state"].get(ON_OPERATIONS_PORT, False):
                raise NotFoundError("Nothing is at this path.")
        await self._app(scope, receive, send)
