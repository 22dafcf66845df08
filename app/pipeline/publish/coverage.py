"""How far the data behind a result reaches, and how much of its time it covers."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.pipeline.folders import RunFolder, finish_publication
from app.pipeline.job import Job
from app.pipeline.tables import BUCKET_MINUTE, Table

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_US: Final = 60_000_000
_MINUTES: Final = 1 << 32
"""More than there are between 1970 and the year 9999."""


class Place(NamedTuple):
    """A partition: of which table, cluster and day, and where its files are.

    ``cluster_id`` is empty and ``day`` null where the table is not partitioned by them.
    """

    table: str
    cluster_id: str
    day: date | None
    folder: Path


class Reach(NamedTuple):
    """The end of the last minute, and the share of the brokers' minutes that reported (0 to 1).

    Both are null where there is no minute.
    """

    data_through: datetime | None
    coverage: float | None


def covered_places(job: Job, run: RunFolder) -> list[Place]:
    """Return the partitions of ``bucket_minute`` that the run wrote, or else those that it read."""
    written = [place_of(run.folder, path) for path in run.places]
    own = [place for place in written if place.table == BUCKET_MINUTE.name]
    if own or not job.options.input:
        return own
    read = [place for folder in job.inputs() for place in places_below(folder, BUCKET_MINUTE)]
    return [place for place in read if _asked_for(job, place)]


def reach_of(places: Iterable[Place], period: tuple[datetime | None, datetime | None]) -> Reach:
    """Return how far partitions of ``bucket_minute`` reach within a period.

    Brokers are expected in every minute from the first to the last that any of them has.
    """
    seen = np.empty(0, np.int64)
    for place in places:
        for minutes in _broker_minutes(place.folder):
            seen = np.union1d(seen, minutes)
    brokers, minutes = np.divmod(seen, _MINUTES)
    keep = np.ones(len(minutes), bool)
    since, until = period
    if since is not None:
        keep &= minutes >= _minute(since)
    if until is not None:
        keep &= minutes < _minute(until)
    return _reach(brokers[keep], minutes[keep])


def _reach(brokers: np.ndarray, minutes: np.ndarray) -> Reach:
    if not len(minutes):
        return Reach(None, None)
    first, last = int(minutes.min()), int(minutes.max())
    expected = len(np.unique(brokers)) * (last - first + 1)
    return Reach(_EPOCH + timedelta(minutes=last + 1), len(minutes) / expected)


def _broker_minutes(folder: Path) -> Iterator[np.ndarray]:
    for file in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(columns=["ts", "broker_id"]):
                stamps = _integers(batch.column("ts").cast(pa.timestamp("us", "UTC")))
                brokers = _integers(batch.column("broker_id"))
                yield np.unique(brokers * _MINUTES + stamps // _MINUTE_US)


def _integers(column: pa.Array) -> np.ndarray:
    numbers: np.ndarray = column.cast("int64").to_numpy(zero_copy_only=False)
    return numbers


def _minute(time: datetime) -> int:
    """Return the first minute that begins at the time or later."""
    return -((_EPOCH - time) // timedelta(minutes=1))


def _asked_for(job: Job, place: Place) -> bool:
    since, until = job.period()
    if job.options.cluster and place.cluster_id != job.options.cluster:
        return False
    begins = datetime.combine(place.day, datetime.min.time(), UTC) if place.day else None
    if begins is None:
        return True
    return (since is None or since < begins + timedelta(days=1)) and (
        until is None or begins < until
    )


def clusters_of(places: Sequence[Place]) -> list[str]:
    """Return the clusters, each once, in order."""
    return sorted({place.cluster_id for place in places})


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
