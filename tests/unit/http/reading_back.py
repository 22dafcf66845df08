"""Readers of the formats of ``GET /quotas``, written as a caller would write them."""

import csv
import io
import json
from collections.abc import Iterable

import yaml

Rows = list[tuple[dict[str, str | None], dict[str, float]]]


def read_json(body: bytes) -> Rows:
    return _rows(json.loads(body)["quotas"])


def read_ndjson(body: bytes) -> Rows:
    lines = body.decode().split("\n")
    assert lines.pop() == ""
    return _rows(json.loads(line) for line in lines)


def read_yaml(body: bytes) -> Rows:
    document = yaml.safe_load(body)
    assert document.keys() == {"apiVersion", "quotas"}
    assert document["apiVersion"] == "quotas/v1"
    return _rows(document["quotas"])


def _rows(quotas: Iterable[dict]) -> Rows:
    return [
        (quota["entity"], {key: float(value) for key, value in quota["values"].items()})
        for quota in quotas
    ]


def read_csv(body: bytes) -> Rows:
    """Read the rows of CSV, taking the guard against formulas off again."""
    rows: Rows = []
    for row in csv.DictReader(io.StringIO(body.decode(), newline=""), strict=True):
        entity = {
            kind: _unguarded(row[kind]) if row[column] == "name" else None
            for kind, column in (
                ("user", "user_kind"),
                ("client-id", "client_id_kind"),
                ("ip", "ip_kind"),
            )
            if row[column] != "absent"
        }
        if not rows or rows[-1][0] != entity:
            rows.append((entity, {}))
        rows[-1][1][_unguarded(row["key"])] = float(_unguarded(row["value"]))
    return rows


def _unguarded(cell: str) -> str:
    return cell.removeprefix("'")
