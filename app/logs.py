"""Logs: one line of JSON for each event on standard output, or text for people."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from app.http.middleware import add_request
from app.settings import LogFormat

_QUIET: Final = ("uvicorn.access", "asyncio")
"""Loggers that say what the service's own access log says better."""


def configure_logs(log_format: LogFormat, level: str) -> None:
    """Send every log line, those of libraries too, to standard output in one format.

    Our own loggers write without a detour through ``logging``: each request has a line.
    """
    render: Any = structlog.processors.JSONRenderer(separators=(",", ":"))
    if log_format is LogFormat.TEXT:
        render = structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())
    shared: list[Any] = [
        add_request,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, render, _encode],
        logger_factory=lambda name: structlog.BytesLogger(sys.stdout.buffer, name=name),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_internals,
                render,
            ],
        )
    )
    logging.root.handlers = [handler]
    logging.root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _encode(_logger: Any, _name: str, line: Any) -> bytes:
    return str(line).encode("utf-8", "backslashreplace")


def _without_internals(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.pop("color_message", None)
    return event
