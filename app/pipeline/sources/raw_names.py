"""What the labels of many rows say; a name that many of them have is read once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.domain.broker_metrics import RATE, THROTTLE, TOKENS, UP, QuotaMetric, quota_metric_of
from app.pipeline.sources.codes import Coded, Flags, numbered
from app.pipeline.sources.points import (
    MISSING_BROKER,
    OUTSIDE,
    UNDECODABLE,
    UNKNOWN_METRIC,
    UNPARSABLE,
    Labels,
    Points,
    Rules,
)
from app.pipeline.sources.values import END_US, FIRST_US

ATTRIBUTES: Final = (RATE, THROTTLE, TOKENS, UP)
LABELS: Final = ("cluster_id", "broker", "instance", "metric", "resource", "user", "client_id")
FINE: Final = 0
PROBLEMS: Final = (None, UNPARSABLE, OUTSIDE, UNKNOWN_METRIC, MISSING_BROKER, UNDECODABLE)

_NOTHING: Final = QuotaMetric("", "")


class Labelled:
    """What the labels of rows say.

    Attributes:
        problems: For each row the place of its problem in ``PROBLEMS``.
        names: The columns of a fine point, by name.
        attributes: For each row the place of its attribute in ``ATTRIBUTES``.
    """

    def __init__(self, raw: pa.Table, rules: Rules) -> None:
        """Read the labels of rows."""
        self._rules = rules
        self._points = Points(0, rules)
        self._told = {name: Coded.of_names(raw[name]) for name in LABELS}
        self.problems = np.zeros(raw.num_rows, np.int8)
        self.names: dict[str, Coded] = {}
        self.attributes = np.zeros(raw.num_rows, np.int8)
        # The first problem of a row is the one that counts.
        self._mark(UNPARSABLE, _is_no_time(raw["ts"]) | _is_null(raw["value"]))
        self._mark(OUTSIDE, self._outside(raw["ts"]))
        self._mark(UNKNOWN_METRIC, self._read_metrics())
        self._mark(MISSING_BROKER, self._read_brokers())
        self._mark(UNDECODABLE, self._read_names())

    def refused(self) -> Sequence[tuple[int, int]]:
        """Return the rows with a problem, each with the place of that in ``PROBLEMS``."""
        rows = np.flatnonzero((self.problems != FINE) & (self.problems != PROBLEMS.index(OUTSIDE)))
        return list(zip(rows.tolist(), self.problems[rows].tolist(), strict=True))

    def _mark(self, problem: str, rows: Flags) -> None:
        self.problems[rows & (self.problems == FINE)] = PROBLEMS.index(problem)

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
        found = _pairs(
            metric, resource, lambda item, other: quota_metric_of(_text(item), _text(other))
        )
        keys = [(value or _NOTHING).key for value in found.values]
        self.names["key"] = _as_column(found.codes, keys)
        places = [ATTRIBUTES.index(value.attribute) if value else -1 for value in found.values]
        self.attributes = np.array([*places, -1], np.int8)[found.codes]
        return self.attributes < 0

    def _read_brokers(self) -> Flags:
        def read(broker: bytes, instance: bytes) -> int | None:
            return self._points.broker(Labels(broker=_text(broker), instance=_text(instance)))

        found = _pairs(self._told["broker"], self._told["instance"], read)
        ids = np.array([-1 if item is None else item for item in (*found.values, None)])
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
        known = [_decoded(value, read) for value in told.values.to_pylist()]
        readable = np.array([item is not None for item in (*known, "")])[told.codes]
        codes = np.where(nameless, len(known), told.codes)
        self.names[name] = _as_column(codes, [item or "" for item in (*known, "")])
        return ~readable & ~nameless


@dataclass(frozen=True, slots=True)
class _Pairs:
    codes: npt.NDArray[np.int64]
    values: Sequence[Any]


def _pairs(one: Coded, other: Coded, read: Any) -> _Pairs:
    """Read each pair of values that occurs, once."""
    codes = one.codes * len(other) + other.codes
    occur, places = numbered(codes, len(one) * len(other))
    first, second = one.values.to_pylist(), other.values.to_pylist()
    known = [read(first[at // len(other)], second[at % len(other)]) for at in occur.tolist()]
    return _Pairs(places, known)


def _as_column(codes: npt.NDArray[np.int64], values: Sequence[str]) -> Coded:
    known = Coded.of(pa.array(values, pa.string()))
    return Coded(known.codes[codes], known.values) if len(values) else Coded(codes, known.values)


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


def _is_no_time(times: pa.ChunkedArray) -> Flags:
    micros = _micros(times)
    no_time: Flags = _is_null(times) | (micros < FIRST_US) | (micros >= END_US)
    return no_time


def _micros(times: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    micros = times.combine_chunks().cast(pa.int64()).fill_null(0)
    return np.asarray(micros.to_numpy(zero_copy_only=False))
