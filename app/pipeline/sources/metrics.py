"""Metrics of any format as a frame of points: a data source that tasks run in Python."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from app.pipeline.sources.formats import Piece, read_piece
from app.pipeline.sources.inputs import Inputs
from app.pipeline.sources.metric_names import UP
from app.pipeline.sources.points import POINT_DDL, Points, Rules
from app.pipeline.sources.raw_rows import raw_rows

_NAME: Final = "quota-metrics"
_POINTS_OF_TASK: Final = 1_000_000
_SLICE_S: Final = 900


@contextmanager
def read_points(
    session: SparkSession, inputs: Inputs, rules: Rules, *, by_row: bool = False
) -> Iterator[DataFrame]:
    """Give the points of the inputs for the length of a block, spread over tasks.

    Rows of tidy Parquet come as they are (``RAW_DDL``) where Spark can read them, all others judged
    (``POINT_DDL``); where both occur, each lacks what the other has. All points with the same
    names, day and broker are in one task. How many tasks there are follows from the inputs alone.

    Args:
        session: Reads.
        inputs: What.
        rules: How points are judged.
        by_row: Whether every row is read by Python: a file that turns out to be broken costs
            itself alone then.
    """
    raw = [] if by_row else [one for one in inputs.pieces if one.get("types")]
    others = [one for one in inputs.pieces if one not in raw]
    with _source(session, others, inputs.settings, rules) as points:
        spread = Spread.of(raw, rules)
        frame = points
        if raw:
            rows = raw_rows(session, list({one["file"]: one for one in raw}.values()))
            frame = points.unionByName(rows, allowMissingColumns=True) if others else rows
        tasks = max(1, ceil(inputs.points / _POINTS_OF_TASK))
        yield frame.repartition(tasks, *spread.columns(frame))


@contextmanager
def _source(
    session: SparkSession, pieces: Sequence[Piece], settings: Mapping[str, str], rules: Rules
) -> Iterator[DataFrame]:
    """Read pieces in Python.

    The plan goes by a file that this user alone can read: what Spark is told, its UI shows.
    """
    plan = {"pieces": list(pieces), "settings": dict(settings), "rules": rules.as_json()}
    descriptor, path = tempfile.mkstemp(prefix="quota-pipeline-", suffix=".json")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(plan, file)
        session.dataSource.register(MetricsSource)
        yield session.read.format(_NAME).option("plan", path).load()
    finally:
        Path(path).unlink()


@dataclass(frozen=True)
class Spread:
    """By what points go to tasks: the same for all that may be the same point.

    Attributes:
        by_name: Whether names are told as they are. Tags may spell one name in several ways, so
            they go by time.
        by_broker: Whether brokers are told by their ids.
    """

    by_name: bool
    by_broker: bool

    @classmethod
    def of(cls, raw: Sequence[Piece], rules: Rules) -> Self:
        """Choose for rows that are not judged yet, beside points."""
        plain = all(one["types"].get(one["columns"]["broker_id"]) == "int" for one in raw)
        return cls(not raw or not rules.tags, plain and not (raw and rules.map.instances))

    def columns(self, frame: DataFrame) -> Sequence[Column]:
        """Return what rows are spread by."""
        chosen = [_or_empty("cluster_id")]
        if self.by_name:
            chosen += [sf.to_date("ts"), _name_of("user", frame), _name_of("client_id", frame)]
        else:
            chosen.append(sf.floor(sf.unix_seconds("ts") / _SLICE_S))
        if self.by_broker:
            ids = [sf.col(one) for one in ("broker", "broker_id") if one in frame.columns]
            chosen.append(sf.coalesce(*(one.cast("string") for one in ids)))
        if "problem" in frame.columns:
            # What cannot be used has no names; without this one task would get all of it.
            refused = sf.col("problem").isNotNull()
            chosen.append(sf.when(refused, sf.xxhash64("file", "line")))
        return chosen


def _name_of(name: str, frame: DataFrame) -> Column:
    if "metric" not in frame.columns:
        return _or_empty(name)
    return sf.when(sf.lower("metric") == UP, "").otherwise(_or_empty(name))


def _or_empty(name: str) -> Column:
    return sf.coalesce(sf.col(name), sf.lit(""))


class MetricsSource(DataSource):
    """The data source; option ``plan`` names the file with what is to be read."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return _NAME

    def schema(self) -> str:
        """Return the columns of a point."""
        return POINT_DDL

    def reader(self, schema: StructType) -> "MetricsReader":  # noqa: ARG002 - Spark's signature
        """Return what reads the plan's pieces."""
        return MetricsReader(json.loads(Path(self.options["plan"]).read_text()))


@dataclass
class MetricsPartition(InputPartition):
    """A piece, with all that is needed to read it elsewhere."""

    piece: Piece
    settings: Mapping[str, str]
    rules: Mapping[str, Any]


class MetricsReader(DataSourceReader):
    """Reads pieces, each in a task."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        """Take the plan."""
        self._plan = plan

    def partitions(self) -> list[MetricsPartition]:
        """Return a partition for each piece."""
        settings, rules = self._plan["settings"], self._plan["rules"]
        return [MetricsPartition(piece, settings, rules) for piece in self._plan["pieces"]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece."""
        if not isinstance(partition, MetricsPartition):
            # Without pieces Spark asks for one partition all the same.
            return
        points = Points(partition.piece["file"], Rules.of(partition.rules))
        yield from read_piece(partition.piece, partition.settings, points)
