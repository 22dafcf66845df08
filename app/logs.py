"""Logs: one line of JSON for each event on standard output, or text for people."""

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, BinaryIO, Final, TextIO, cast

import structlog

from app.command_line import drop
from app.http.middleware import add_request
from app.setting_types import LogFormat

_QUIET: Final = {
    "uvicorn.access": logging.WARNING,
    "asyncio": logging.WARNING,
    "psycopg.pool": logging.ERROR,
}
"""Loggers that repeat the service's own lines: each request has one, and why Postgres cannot be
used has one a minute."""


def configure_logs(log_format: LogFormat, level: str) -> None:
    """Send every log line, those of libraries too, to standard output in one format.

    Our own loggers write without a detour through ``logging``: each request has a line. Lines that
    standard output does not take, as on a full disk, are dropped: they cost no request.
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
        logger_factory=lambda name: structlog.BytesLogger(_lines(), name=name),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = _Handler(sys.stdout)
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
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)


def end_logs() -> None:
    """Write what is left, or drop it."""
    try:
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)


def _lines() -> BinaryIO:
    return cast("BinaryIO", _Lines(sys.stdout.buffer))


class _Lines:
    """Standard output; what its buffer holds meanwhile comes out later, in whole lines."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, line: bytes) -> None:
        with suppress(OSError):
            self._out.write(line)

    def flush(self) -> None:
        with suppress(OSError):
            self._out.flush()


class _Handler(logging.StreamHandler[TextIO]):
    """Writes the lines of libraries; of a lost one there is no traceback on standard error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _encode(_logger: Any, _name: str, line: Any) -> bytes:
    return str(line).encode("utf-8", "backslashreplace")


def _without_internals(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.pop("color_message", None)
    return event
