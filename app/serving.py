"""``serve``: this process serves, or it is the parent of the workers that do."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog

from app.http.application import create_application
from app.http.services import Services
from app.listeners import listeners
from app.logs import configure_logs
from app.server import Port, build_server
from app.settings import Settings
from app.startup_checks import check_dependencies, warn
from app.wiring import Wiring
from app.workers import serve_with_workers

logger = structlog.get_logger(__name__)


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Args:
        settings: As ``load_settings`` has checked them.

    Raises:
        SettingsError: Postgres or the brokers are not those that the settings ask for.
    """
    configure_logs(settings.log_format, settings.log_level)
    warn(settings)
    ports = listeners(settings)
    logger.info("starting", brokers=settings.kafka_bootstrap_servers)
    asyncio.run(check_dependencies(settings))
    if settings.workers > 1:
        return serve_with_workers(settings, ports)
    server = build_server(settings, Wiring(settings), [Port(port) for port in ports])
    server.run()
    return 0 if server.started else 1


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document; needs no settings and connects to nothing."""
    return create_application(_Unopened).openapi()


class _Unopened(AbstractAsyncContextManager[Services]):
    """Stands in for the services of an application that only describes itself."""

    async def __aenter__(self) -> Services:
        message = "this application only describes itself"
        raise RuntimeError(message)
