"""Logs: one line of JSON for each event on standard output, or text for people."""

import json
import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import structlog

from app.http.middleware import RequestLog, add_request, log_request
from app.settings import LogFormat

_QUIET: Final = ("uvicorn.access", "asyncio")
"""Loggers that say what the service's own access log says better."""


def configure_logs(log_format: LogFormat, level: str) -> None:
    """Send every log line, those of libraries too, to standard output in one format.

    Our own loggers write without a detour through ``logging``: each request has a line.
    """
    shared: list[Any] = [
        add_request,
        _add_worker,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, *_to_bytes(log_format)],
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
                _renderer(log_format, json.dumps),
            ],
        )
    )
    logging.root.handlers = [handler]
    logging.root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def request_log(log_format: LogFormat, level: str) -> RequestLog:
    """Return what writes the line of each request.

    In JSON it is written without the processors: the same fields in the same order.
    """
    if log_format is LogFormat.TEXT or level not in _REQUEST_LEVELS:
        return log_request
    write = structlog.BytesLogger(sys.stdout.buffer).msg

    def write_line(line: dict[str, Any]) -> None:
        fields = line.copy()
        fields["event"] = "request"
        if _worker:
            fields["worker"] = _worker[0]
        fields["level"] = "info"
        fields["logger"] = log_request.__module__
        fields["timestamp"] = datetime.now(UTC)
        try:
            text = orjson.dumps(fields, option=orjson.OPT_UTC_Z)
        except TypeError:  # as in ``_json_line``
            log_request(line)
        else:
            write(text)

    return write_line


_REQUEST_LEVELS: Final = frozenset({"DEBUG", "INFO"})
"""The levels at which requests are logged."""


def name_worker(number: int) -> None:
    """Have every line of this process name the worker."""
    _worker.append(number)


_worker: Final[list[int]] = []


def _add_worker(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if _worker:
        event["worker"] = _worker[0]
    return event


def _renderer(log_format: LogFormat, serializer: Callable[..., str]) -> Any:
    if log_format is LogFormat.TEXT:
        return structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())
    return structlog.processors.JSONRenderer(serializer)


def _to_bytes(log_format: LogFormat) -> list[Any]:
    if log_format is LogFormat.TEXT:
        return [_renderer(log_format, json.dumps), _encode]
    return [_json_line]


def _json_line(_logger: Any, _name: str, event: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(event, default=repr)
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        return json.dumps(event, default=repr).encode("ascii")


def _encode(_logger: Any, _name: str, line: Any) -> bytes:
    return str(line).encode("utf-8", "backslashreplace")


def _without_internals(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event.pop("color_message", None)
    return event
