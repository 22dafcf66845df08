"""Rows of tidy Parquet, judged column by column: the same rules as ``Points``.

A name, a metric or a broker is read once however many rows have it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.domain.broker_metrics import THROTTLE
from app.pipeline.sources.codes import in_one_piece
from app.pipeline.sources.points import (
    LARGEST,
    OUTSIDE,
    POINT_SCHEMA,
    Rules,
    kept_text,
    problem_of,
)
from app.pipeline.sources.raw_names import ATTRIBUTES, FINE, LABELS, PROBLEMS, Labelled


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a file become its text again, for the quarantine.

    Attributes:
        columns: Header, the column of ``read_raw``, and its type in the file: ``int``, ``naive``
            (a time without a zone) or ``''``.
        cluster: What the file's path says.
    """

    columns: Sequence[tuple[str, str, str]]
    cluster: str

    def text_of(self, row: Mapping[str, Any]) -> str:
        """Return the text of a row."""
        told = {header: _original(row[name], kind) for header, name, kind in self.columns}
        return json.dumps(told, default=str, ensure_ascii=False)


def points_of(
    raw: pa.Table, rules: Rules, layouts: Mapping[int, Layout]
) -> tuple[pa.Table, pa.Table]:
    """Judge rows.

    Args:
        raw: The columns ``file``, ``line``, ``ts``, ``value``, ``cluster_id``, ``broker``,
            ``instance``, ``metric``, ``resource``, ``user`` and ``client_id`` as the file has them:
            null where it has nothing, numbers of brokers as text; texts may be encoded by
            dictionaries.
        rules: How.
        layouts: Of the files, by their numbers.

    Returns:
        What is fine and what is not, both with the columns of ``POINT_DDL``; texts of the former
        are encoded by dictionaries.
    """
    read = Labelled(raw, rules)
    good = np.flatnonzero(read.problems == FINE)
    values = raw["value"].combine_chunks().to_numpy(zero_copy_only=False)
    found = _value_problems(values, read, good)
    fine = np.setdiff1d(good, np.fromiter(found, np.int64, len(found)), assume_unique=True)
    told: dict[int, str] = {int(row): str(PROBLEMS[code]) for row, code in read.refused()} | found
    outside = int(np.count_nonzero(read.problems == PROBLEMS.index(OUTSIDE)))
    return _fine_points(raw, read, values, fine), _refused(raw, told, layouts, outside)


def _value_problems(values: npt.NDArray[Any], read: Labelled, good: Any) -> dict[int, str]:
    """Return the problem of each number that is no ordinary one."""
    odd = good[~((values[good] >= 0) & (values[good] < LARGEST))]
    idle = np.isnan(values[odd]) & (read.attributes[odd] == ATTRIBUTES.index(THROTTLE))
    problems = {
        row: problem_of(ATTRIBUTES[read.attributes[row]], float(values[row]))
        for row in odd[~idle].tolist()
    }
    return {row: problem for row, problem in problems.items() if problem}


def _fine_points(raw: pa.Table, read: Labelled, values: npt.NDArray[Any], rows: Any) -> pa.Table:
    attributes = read.attributes[rows].astype(np.int32)
    chosen = values[rows]
    n = len(rows)
    columns: dict[str, pa.Array] = {
        name: _taken(raw[name], rows) for name in ("file", "line", "ts")
    }
    columns |= {name: item.chosen(rows).encoded() for name, item in read.names.items()}
    columns["broker_id"] = pa.array(read.brokers[rows].astype(np.int32))
    columns["attribute"] = pa.DictionaryArray.from_arrays(
        pa.array(attributes), pa.array(ATTRIBUTES)
    )
    columns["value"] = pa.array(chosen, pa.float64(), mask=np.isnan(chosen))
    columns["n"] = pa.array(np.ones(n, np.int64))
    columns |= {name: pa.nulls(n, pa.string()) for name in ("problem", "raw")}
    return pa.table([columns[name] for name in POINT_SCHEMA.names], POINT_SCHEMA.names)


def _taken(column: pa.ChunkedArray, rows: Any) -> pa.Array:
    whole = in_one_piece(column)
    return whole if len(rows) == len(whole) else whole.take(pa.array(rows))


def _refused(
    raw: pa.Table, told: Mapping[int, str], layouts: Mapping[int, Layout], outside: int
) -> pa.Table:
    """Return the points that cannot be used, each with its text."""
    places = sorted(told)
    rows = _readable_rows(raw.take(pa.array(places, pa.int64())))
    points = [
        {
            "file": row["file"],
            "line": row["line"],
            "problem": told[place],
            "raw": kept_text(layouts[row["file"]].text_of(row)),
            "n": 1,
        }
        for place, row in zip(places, rows, strict=True)
    ]
    if outside:
        points.append({"file": 0, "line": 0, "problem": OUTSIDE, "raw": "", "n": outside})
    return pa.Table.from_pylist(points, POINT_SCHEMA)


def _readable_rows(raw: pa.Table) -> list[dict[str, Any]]:
    """Return rows of Python; what is no UTF-8 becomes lone surrogates."""
    for name in LABELS:
        at = raw.schema.get_field_index(name)
        raw = raw.set_column(at, name, raw[name].cast(pa.string()).cast(pa.binary()))
    return [
        {
            name: item.decode(errors="surrogateescape") if isinstance(item, bytes) else item
            for name, item in row.items()
        }
        for row in raw.to_pylist()
    ]


def _original(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "int":
        return int(value)
    return value.replace(tzinfo=None) if kind == "naive" else value
