"""Made-up observations in every shape that ``ingest`` reads, a folder each."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from app.pipeline.synth.points import (
    adapter_lines,
    collected_rows,
    csv_rows,
    parquet_rows,
    prometheus_documents,
    vm_lines,
)

_CSV: Final = {
    "header": "true",
    "escape": '"',
    "emptyValue": "",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}


@dataclass(frozen=True)
class _Files:
    """How a shape's rows become files.

    Attributes:
        rows: The rows of the shape.
        kind: Of file, as Spark's writers call it.
        ending: Of the files' names.
        place: The folder below the shape's.
        order: What sorts the rows into their file: the bytes are the same whatever the cores.
    """

    rows: Callable[[DataFrame], DataFrame]
    kind: str
    ending: str
    order: tuple[str, ...]
    place: str = ""


_POINT: Final = ("ts", "broker_id", "metric", "resource", "user", "client_id")
_LINE: Final = ("value",)

_SHAPES: Final[Mapping[str, _Files]] = {
    "parquet": _Files(parquet_rows, "parquet", "parquet", _POINT),
    "vm-jsonl": _Files(vm_lines, "text", "jsonl", _LINE),
    "csv": _Files(csv_rows, "csv", "csv", _POINT),
    "adapter-json": _Files(adapter_lines, "text", "jsonl", _LINE),
    "kafka-json": _Files(adapter_lines, "text", "jsonl", _LINE),
    "collect": _Files(collected_rows, "parquet", "parquet", _POINT, "collected"),
}
_DOCUMENTS: Final = "prom-json"

SHAPES: Final = (*_SHAPES, _DOCUMENTS)
"""The names of ``ingest --format``."""


def write_shape(shape: str, observations: DataFrame, folder: Path) -> int:
    """Write the folder of a shape anew and return how many files it has.

    Args:
        shape: One of ``SHAPES``.
        observations: The columns of ``OBSERVATION_MINUTE``.
        folder: Where the shape's folder stands.
    """
    final, aside = folder / shape, folder / f"_{shape}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    if shape == _DOCUMENTS:
        _write_documents(observations, aside)
    else:
        _write_files(_SHAPES[shape], observations, aside)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    return sum(1 for file in final.rglob("*") if file.is_file())


def _write_files(files: _Files, observations: DataFrame, aside: Path) -> None:
    rows = files.rows(observations).coalesce(1).sortWithinPartitions(*files.order)
    written = aside / "_spark"
    options = _CSV if files.kind == "csv" else {}
    rows.write.format(files.kind).options(**options).save(str(written))
    place = aside / files.place
    place.mkdir(exist_ok=True)
    for number, part in enumerate(sorted(written.glob("part-*"))):
        part.rename(place / f"part-{number:05d}.{files.ending}")
    shutil.rmtree(written)


def _write_documents(observations: DataFrame, aside: Path) -> None:
    for row in prometheus_documents(observations).toLocalIterator():
        file = aside / f"{row.metric}-{row.dt}.json"
        file.write_text(row.document + "\n", encoding="utf-8")
