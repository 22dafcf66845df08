"""Scraped metrics as Parquet files; a file is complete as soon as it can be seen."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.sources.scrapes import Scrape

FOLDER: Final = "collected"

_SCHEMA: Final = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("broker_id", pa.int32()),
        ("metric", pa.string()),
        ("resource", pa.string()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("value", pa.float64()),
    ]
)
_UP: Final = "up"


def local_folder(uri: str) -> Path:
    """Return the folder that a path or ``file:`` URI names.

    Raises:
        UsageError: It names something else.
    """
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return Path(uri.removeprefix("file:")).absolute()
    if scheme != "file":
        message = f"{uri}: files are collected in a folder of this machine; mount it."
        raise UsageError(message)
    return Path(unquote(rest)).absolute()


class CollectedFiles:
    """Gathers scrapes and writes them, a file at a time, below ``OUT/collected``."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Make the folder.

        Raises:
            InfrastructureError: It cannot be made.
        """
        self.folder = folder / FOLDER
        self.rows = 0
        self.files = 0
        self._cluster = cluster
        self._waiting: list[tuple[Any, ...]] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{self.folder} cannot be made: {error.strerror}. Name another --out."
            raise InfrastructureError(message) from error

    def add(self, scrapes: Sequence[Scrape]) -> None:
        """Keep scrapes for the next file."""
        for scrape in scrapes:
            self._waiting.extend(self._rows(scrape))

    def write(self) -> None:
        """Write what waits as one file.

        Raises:
            OSError: The file cannot be written; its rows wait for the next.
        """
        if not self._waiting:
            return
        columns = list(zip(*self._waiting, strict=True))
        arrays = [
            pa.array(cells, field.type) for cells, field in zip(columns, _SCHEMA, strict=True)
        ]
        file = self._name(self._waiting[0][1])
        hidden = file.with_name(f".{file.name}.part")
        pq.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), hidden, compression="zstd")
        hidden.rename(file)
        self.rows += len(self._waiting)
        self.files += 1
        self._waiting.clear()

    def _rows(self, scrape: Scrape) -> Iterator[tuple[Any, ...]]:
        at = (self._cluster, datetime.fromtimestamp(scrape.at, UTC), scrape.broker_id)
        yield (*at, _UP, "", "", "", 0.0 if scrape.problem else 1.0)
        for sample in scrape.samples:
            yield (*at, *sample)

    def _name(self, first: datetime) -> Path:
        """Return a name that no file has: two collectors may share a folder."""
        stem = first.strftime("collected-%Y%m%dT%H%M%S%f")
        name, number = self.folder / f"{stem}.parquet", 0
        while name.exists():
            number += 1
            name = self.folder / f"{stem}-{number}.parquet"
        return name
