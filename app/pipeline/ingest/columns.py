"""Which column of a tidy file is what."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.pipeline.errors import UsageError
from app.pipeline.ingest.metric_map import COLUMNS, OPTIONAL, MetricMap

Columns = Mapping[str, str | None]
"""A field of a point (``FIELDS``) to the header of its column; null where there is none."""

FIELDS: Final = (
    *("ts", "value", "cluster_id", "broker_id", "instance", "metric", "resource", "user"),
    "client_id",
)
"""Time and value, then what ``Labels`` holds, in its order."""


def columns_of(headers: Sequence[str], metric_map: MetricMap, where: str) -> Columns:
    """Find the columns of a file.

    Args:
        headers: What the file has.
        metric_map: The map; a column that it does not name has its own name, however it is spelled.
        where: The file, for the message.

    Raises:
        UsageError: A column is missing.
    """
    found: dict[str, str | None] = {"instance": None}
    missing = []
    for name in (*COLUMNS, OPTIONAL):
        mapped = name in metric_map.columns
        header = metric_map.columns[name] if mapped else _alike(name, headers)
        found[name] = header
        if header is not None and header not in headers:
            missing.append(f"{name} (mapped to {header!r})")
        elif header is None and not mapped:
            missing.append(name)
    _forgive(found, headers, missing)
    if missing:
        message = (
            f"{where} has no column {', '.join(missing)}. Its headers are {', '.join(headers)}. "
            "Name the right ones in the file of --map, below `columns`; null where there is none."
        )
        raise UsageError(message)
    return found


def _forgive(found: dict[str, str | None], headers: Sequence[str], missing: list[str]) -> None:
    """Take off the list what the file can do without."""
    forgiven = [OPTIONAL]
    if "broker_id" in missing:
        found["broker_id"] = _alike("broker", headers)
        found["instance"] = _alike("instance", headers)
        if found["broker_id"] or found["instance"]:
            forgiven.append("broker_id")
    if found["metric"] or found["resource"]:
        forgiven += ["metric", "resource"]
    missing[:] = [item for item in missing if item not in forgiven]


def _alike(name: str, headers: Sequence[str]) -> str | None:
    if name in headers:
        return name
    return next((header for header in headers if _plain(header) == _plain(name)), None)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
