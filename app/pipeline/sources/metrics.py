"""Metrics of any format as a frame of points: a data source that tasks run in Python."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from app.pipeline.sources.formats import Piece, read_piece
from app.pipeline.sources.inputs import Inputs
from app.pipeline.sources.points import POINT_DDL, Points, Rules

_NAME: Final = "quota-metrics"


@contextmanager
def read_points(session: SparkSession, inputs: Inputs, rules: Rules) -> Iterator[DataFrame]:
    """Give the points of the inputs for the length of a block.

    The plan goes by a file that this user alone can read: what Spark is told, its UI shows.
    """
    plan = {
        "pieces": inputs.pieces,
        "settings": dict(inputs.settings),
        "rules": rules.as_json(),
    }
    descriptor, path = tempfile.mkstemp(prefix="quota-pipeline-", suffix=".json")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(plan, file)
        session.dataSource.register(MetricsSource)
        yield session.read.format(_NAME).option("plan", path).load()
    finally:
        Path(path).unlink()


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
