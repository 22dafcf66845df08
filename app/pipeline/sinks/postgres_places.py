"""The partitions of a folder, read back from their names."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from app.pipeline.folders import finish_publication
from app.pipeline.tables import Table


class Place(NamedTuple):
    """A partition: of which table, cluster and day, and where its files are.

    ``cluster_id`` is empty and ``day`` null where the table is not partitioned by them.
    """

    table: str
    cluster_id: str
    day: date | None
    folder: Path


def place_of(folder: Path, path: str) -> Place:
    """Read ``table/cluster_id=…/dt=…`` below a folder."""
    table, *parts = path.split("/")
    values = {name: unquote(value) for name, _, value in (part.partition("=") for part in parts)}
    day = date.fromisoformat(values["dt"]) if "dt" in values else None
    return Place(table, values.get("cluster_id", ""), day, folder / path)


def places_below(folder: Path, table: Table) -> Iterator[Place]:
    """Yield the published partitions of a table."""
    finish_publication(folder)
    pattern = "/".join([table.name, *(f"{name}=*" for name in table.partitions)])
    for path in sorted(folder.glob(pattern)):
        yield place_of(folder, str(path.relative_to(folder)))
