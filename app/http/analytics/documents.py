"""Results of the pipeline as JSON documents."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from app.http.encoding import quota_value_json, rfc3339
from app.service.queries.analytics import AnalyticsPage, BucketUsage, Row

_TEXTS = frozenset({"bucket_id"})
"""Integers of 64 bits, which a reader that knows float64 only would round."""


def page_json(page: AnalyticsPage, columns: tuple[str, ...], token: str | None) -> dict[str, Any]:
    """Return one page; ``columns`` are those of its rows."""
    run = page.run
    return {
        "run_id": None if run is None else run.run_id,
        "data_through": None if run is None else _plain(run.data_through),
        "coverage": None if run is None else _plain(run.coverage),
        "rows": [row_json({name: row[name] for name in columns}) for row in page.rows],
        "next_page_token": token,
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return one row of a table, by column."""
    return {
        name: str(value) if name in _TEXTS and value is not None else _plain(value)
        for name, value in row.items()
    }


def usage_json(usage: BucketUsage | None) -> dict[str, Any] | None:
    """Return the last day of a bucket; null where nothing is known."""
    if usage is None:
        return None
    return {
        "p95": _plain(usage.p95),
        "p99": _plain(usage.p99),
        "max": _plain(usage.max),
        "throttled_minutes": usage.throttled_minutes,
        "data_through": _plain(usage.data_through),
        "coverage": _plain(usage.coverage),
    }


def _plain(value: Any) -> Any:
    match value:
        case float():
            return quota_value_json(value)
        case datetime():
            return rfc3339(value)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(name): _plain(member) for name, member in value.items()}
        case _:
            return value
