"""Rows of tidy Parquet as Spark reads them, judged column by column: the same rules as ``Points``.

A name, a metric or a broker is read once however many rows have it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.pipeline.sources.codes import Coded, Flags
from app.pipeline.sources.metric_names import RATE, THROTTLE, TOKENS, UP, Meaning, meaning_of
from app.pipeline.sources.points import (
    LARGEST,
    MISSING_BROKER,
    OUTSIDE,
    POINT_SCHEMA,
    UNDECODABLE,
    UNKNOWN_METRIC,
    UNPARSABLE,
    Labels,
    Points,
    Rules,
    kept_text,
    problem_of,
)

RAW_DDL: Final = """
    file int, line bigint, ts timestamp, value double, cluster_id string, broker string,
    instance string, metric string, resource string, user string, client_id string"""
"""A row as its file has it: null where it has nothing, numbers of brokers as text."""

ATTRIBUTES: Final = (RATE, THROTTLE, TOKENS, UP)

_FINE: Final = 0
_PROBLEMS: Final = (None, UNPARSABLE, OUTSIDE, UNKNOWN_METRIC, MISSING_BROKER, UNDECODABLE)
_LABELS: Final = ("cluster_id", "broker", "instance", "metric", "resource", "user", "client_id")
_NOTHING: Final = Meaning("", "")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a file become its text again, for the quarantine.

    Attributes:
        columns: Header, the column of ``RAW_DDL``, and its type in the file: ``int``, ``naive``
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
        raw: The columns of ``RAW_DDL``.
        rules: How.
        layouts: Of the files, by their numbers.

    Returns:
        What is fine and what is not, both with the columns of ``POINT_DDL``; texts of the former
        are encoded by dictionaries.
    """
    read = _Read(raw, rules)
    good = np.flatnonzero(read.problems == _FINE)
    values = raw["value"].combine_chunks().to_numpy(zero_copy_only=False)
    found = _value_problems(values, read, good)
    fine = np.setdiff1d(good, np.fromiter(found, np.int64, len(found)), assume_unique=True)
    told: dict[int, str] = {int(row): str(_PROBLEMS[code]) for row, code in read.refused()} | found
    outside = int(np.count_nonzero(read.problems == _PROBLEMS.index(OUTSIDE)))
    return _fine_points(raw, read, values, fine), _refused(raw, told, layouts, outside)


class _Read:
    """What the labels of rows say.

    Attributes:
        problems: For each row the place of its problem in ``_PROBLEMS``.
        names: The columns of a fine point, by name.
        attributes: For each row the place of its attribute in ``ATTRIBUTES``.
    """

    def __init__(self, raw: pa.Table, rules: Rules) -> None:
        self._rules = rules
        self._points = Points(0, rules)
        self._told = {name: _bytes_of(raw[name]) for name in _LABELS}
        self.problems = np.zeros(raw.num_rows, np.int8)
        self.names: dict[str, Coded] = {}
        self.attributes = np.zeros(raw.num_rows, np.int8)
        # The first problem of a row is the one that counts.
        self._mark(UNPARSABLE, _is_null(raw["ts"]) | _is_null(raw["value"]))
        self._mark(OUTSIDE, self._outside(raw["ts"]))
        self._mark(UNKNOWN_METRIC, self._read_metrics())
        self._mark(MISSING_BROKER, self._read_brokers())
        self._mark(UNDECODABLE, self._read_names())

    def refused(self) -> Sequence[tuple[int, int]]:
        rows = np.flatnonzero(
            (self.problems != _FINE) & (self.problems != _PROBLEMS.index(OUTSIDE))
        )
        return list(zip(rows.tolist(), self.problems[rows].tolist(), strict=True))

    def _mark(self, problem: str, rows: Flags) -> None:
        self.problems[rows & (self.problems == _FINE)] = _PROBLEMS.index(problem)

    def _outside(self, times: pa.ChunkedArray) -> Flags:
        micros = _micros(times)
        outside = np.zeros(len(micros), np.bool_)
        if self._rules.since_us is not None:
            outside |= micros < self._rules.since_us
        if self._rules.until_us is not None:
            outside |= micros >= self._rules.until_us
        return outside

    def _read_metrics(self) -> Flags:
        metric, resource = self._told["metric"], self._told["resource"]
        found = _pairs(metric, resource, lambda one, other: meaning_of(_text(one), _text(other)))
        keys = [(one or _NOTHING).key for one in found.values]
        self.names["key"] = _as_column(found.codes, keys)
        places = [ATTRIBUTES.index(one.attribute) if one else -1 for one in found.values]
        self.attributes = np.array([*places, -1], np.int8)[found.codes]
        return self.attributes < 0

    def _read_brokers(self) -> Flags:
        def read(broker: bytes, instance: bytes) -> int | None:
            return self._points.broker(Labels(broker=_text(broker), instance=_text(instance)))

        found = _pairs(self._told["broker"], self._told["instance"], read)
        ids = np.array([-1 if one is None else one for one in (*found.values, None)])
        self.brokers = ids[found.codes]
        return self.brokers < 0

    def _read_names(self) -> Flags:
        user, client_id = self._points.read_user, self._points.read_client_id
        is_up = self.attributes == ATTRIBUTES.index(UP)
        bad = np.zeros(len(is_up), np.bool_)
        for name, read in (("user", user), ("client_id", client_id)):
            bad |= self._read_name(name, read, is_up)
        return bad | self._read_name("cluster_id", lambda told: told, np.zeros_like(is_up))

    def _read_name(self, name: str, read: Any, nameless: Flags) -> Flags:
        """Read names, that of some rows as ''; tell which cannot be read."""
        told = self._told[name]
        known = [_decoded(one, read) for one in told.values.to_pylist()]
        readable = np.array([one is not None for one in (*known, "")])[told.codes]
        codes = np.where(nameless, len(known), told.codes)
        self.names[name] = _as_column(codes, [one or "" for one in (*known, "")])
        return ~readable & ~nameless


@dataclass(frozen=True, slots=True)
class _Pairs:
    codes: npt.NDArray[np.int64]
    values: Sequence[Any]


def _pairs(one: Coded, other: Coded, read: Any) -> _Pairs:
    """Read each pair of values that occurs, once."""
    codes = one.codes * len(other) + other.codes
    occur, places = np.unique(codes, return_inverse=True)
    first, second = one.values.to_pylist(), other.values.to_pylist()
    known = [read(first[at // len(other)], second[at % len(other)]) for at in occur.tolist()]
    return _Pairs(places, known)


def _as_column(codes: npt.NDArray[np.int64], values: Sequence[str]) -> Coded:
    known = Coded.of(pa.array(values, pa.string()))
    return Coded(known.codes[codes], known.values) if len(values) else Coded(codes, known.values)


def _value_problems(values: npt.NDArray[Any], read: _Read, good: Any) -> dict[int, str]:
    """Return the problem of each number that is no ordinary one."""
    odd = good[~((values[good] >= 0) & (values[good] < LARGEST))]
    idle = np.isnan(values[odd]) & (read.attributes[odd] == ATTRIBUTES.index(THROTTLE))
    problems = {
        row: problem_of(ATTRIBUTES[read.attributes[row]], float(values[row]))
        for row in odd[~idle].tolist()
    }
    return {row: problem for row, problem in problems.items() if problem}


def _fine_points(raw: pa.Table, read: _Read, values: npt.NDArray[Any], rows: Any) -> pa.Table:
    attributes = read.attributes[rows].astype(np.int32)
    chosen = values[rows]
    n = len(rows)
    columns: dict[str, pa.Array] = {
        name: raw[name].take(pa.array(rows)).combine_chunks() for name in ("file", "line", "ts")
    }
    columns |= {name: one.chosen(rows).encoded() for name, one in read.names.items()}
    columns["broker_id"] = pa.array(read.brokers[rows].astype(np.int32))
    columns["attribute"] = pa.DictionaryArray.from_arrays(
        pa.array(attributes), pa.array(ATTRIBUTES)
    )
    columns["value"] = pa.array(chosen, pa.float64(), mask=np.isnan(chosen))
    columns["n"] = pa.array(np.ones(n, np.int64))
    columns |= {name: pa.nulls(n, pa.string()) for name in ("problem", "raw")}
    return pa.table([columns[name] for name in POINT_SCHEMA.names], POINT_SCHEMA.names)


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
    for name in _LABELS:
        at = raw.schema.get_field_index(name)
        raw = raw.set_column(at, name, raw[name].cast(pa.binary()))
    return [
        {
            name: one.decode(errors="surrogateescape") if isinstance(one, bytes) else one
            for name, one in row.items()
        }
        for row in raw.to_pylist()
    ]


def _original(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "int":
        return int(value)
    return value.replace(tzinfo=None) if kind == "naive" else value


def _bytes_of(column: pa.ChunkedArray) -> Coded:
    return Coded.of(column.cast(pa.binary()).fill_null(b""))


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _decoded(name: bytes, read: Any) -> str | None:
    try:
        told: str | None = read(name.decode())
    except UnicodeDecodeError:
        return None
    return told


def _is_null(column: pa.ChunkedArray) -> Flags:
    return np.asarray(column.combine_chunks().is_null().to_numpy(zero_copy_only=False))


def _micros(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    micros = times.combine_chunks().cast(pa.int64()).fill_null(0)
    return np.asarray(micros.to_numpy(zero_copy_only=False))
