"""Poll the brokers' Prometheus endpoints, and write what they say of quotas; without Spark.

All endpoints are asked at once, at multiples of an interval. Below ``OUT/collected`` each file of
Parquet has one row for each sample, its labels as exported, and one row ``up`` (1 or 0) for each
scrape of each broker: cluster_id, ts (UTC, the time at which all endpoints were asked), broker_id,
metric, resource, user, client_id, value. A file is written each minute, is of one hour, and
complete as soon as it can be seen. Once an hour has been over for one, its files become one. Ctrl-C
ends it, with what was collected.
"""

import argparse
import asyncio
import math
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from app.domain.broker_metrics import NO_QUOTA_METRICS, UP, Sample, quota_samples
from app.pipeline.clusters import add_clusters_option, cluster_id_of
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.job import Job
from app.pipeline.options import OF_HOUR, local_folder

_MOST_WAIT_S: Final = 10.0
_USUAL_PATH: Final = "/metrics"
_FILE_EVERY_S: Final = 60.0

FOLDER: Final = "collected"

Endpoints = Mapping[int, str]
"""The address of each broker's metrics."""


@dataclass(frozen=True)
class Scrape:
    """What one endpoint answered at one time.

    Attributes:
        at: Seconds since 1970, a multiple of the interval.
        broker_id: Whose metrics these are.
        samples: Those of quotas.
        problem: Why there are none; null where the endpoint answered.
    """

    at: float
    broker_id: int
    samples: Sequence[Sample] = ()
    problem: str | None = None

    @property
    def state(self) -> str:
        """The words for people: the problem, or what the answer holds."""
        if self.problem or self.samples:
            return self.problem or "answers"
        return f"answers. No quota metrics in this scrape: {NO_QUOTA_METRICS}"


async def ticks(interval_s: float, duration_s: float | None) -> AsyncIterator[float]:
    """Give each multiple of the interval when it comes, from the next one on.

    Args:
        interval_s: Between two.
        duration_s: From the first one on; null never ends. There is one at least.
    """
    at = first = _next(interval_s, time.time())
    while duration_s is None or at == first or at < first + duration_s:
        await asyncio.sleep(max(0.0, at - time.time()))
        yield at
        # A machine that slept misses some.
        at = max(at + interval_s, _next(interval_s, time.time()))


def _next(interval_s: float, now: float) -> float:
    return math.ceil(now / interval_s) * interval_s


async def _ask(client: httpx.AsyncClient, broker_id: int, url: str, at: float) -> Scrape:
    deadline_s = client.timeout.read
    try:
        async with asyncio.timeout(deadline_s):
            answer = await client.get(url)
        answer.raise_for_status()
        samples = await asyncio.to_thread(_samples, answer)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
        return Scrape(at, broker_id, problem=_sentence(error, deadline_s))
    return Scrape(at, broker_id, samples)


def _samples(answer: httpx.Response) -> list[Sample]:
    return list(quota_samples(answer.content.decode()))


def _sentence(error: Exception, deadline_s: float | None) -> str:
    match error:
        case httpx.HTTPStatusError():
            return f"answers with status {error.response.status_code}"
        case TimeoutError() | httpx.TimeoutException():
            return f"does not answer within {deadline_s:g} s"
        case httpx.HTTPError():
            return f"cannot be reached ({error})"
        case _:
            return f"answers something else than Prometheus text ({error})"


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


class CollectedFiles:
    """Gathers scrapes and writes them, a file at a time, below ``OUT/collected``.

    Attributes:
        rows: That were written.
        files: That were written.
        scrapes: That were gathered.
        up: Those of them that an endpoint answered.
        with_quotas: Those of them that had a quota metric.
    """

    def __init__(self, folder: Path, cluster: str) -> None:
        """Make the folder.

        Raises:
            InfrastructureError: It cannot be made.
        """
        self.folder = folder / FOLDER
        self.rows = self.files = self.scrapes = self.up = self.with_quotas = 0
        self._cluster = cluster
        self._waiting: list[tuple[Any, ...]] = []
        self._files_of: defaultdict[datetime, list[Path]] = defaultdict(list)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{self.folder} cannot be made: {error.strerror}. Name another --out."
            raise InfrastructureError(message) from error

    def add(self, scrapes: Sequence[Scrape]) -> None:
        """Keep scrapes for the next file."""
        self.scrapes += len(scrapes)
        self.up += sum(scrape.problem is None for scrape in scrapes)
        self.with_quotas += sum(bool(scrape.samples) for scrape in scrapes)
        self._waiting.extend(row for scrape in scrapes for row in self._rows(scrape))

    def write(self) -> None:
        """Write what waits, a file for each hour, and make one of the files of earlier hours.

        Raises:
            OSError: A file cannot be written; its rows wait for the next.
        """
        while self._waiting:
            hour = _hour_of(self._waiting[0])
            rows = [row for row in self._waiting if _hour_of(row) == hour]
            named = [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows]
            self._write_file(hour, pa.Table.from_pylist(named, _SCHEMA))
            self.rows += len(rows)
            self.files += 1
            self._waiting = [row for row in self._waiting if _hour_of(row) != hour]
        # Whoever reads the last whole hour has listed its files already.
        for hour in sorted(self._files_of):
            if max(self._files_of) - hour > timedelta(hours=1):
                self._compact(hour)

    def _compact(self, hour: datetime) -> None:
        files = self._files_of[hour]
        if len(files) > 1:
            self._write_file(hour, pa.concat_tables([pq.read_table(file) for file in files]))
            for file in files[:-1]:
                file.unlink(missing_ok=True)
        del self._files_of[hour]

    def _write_file(self, hour: datetime, rows: pa.Table) -> None:
        # Two collectors may share a folder.
        file = self.folder / f"{OF_HOUR}{hour:%Y%m%dT%H}-{uuid4().hex[:8]}.parquet"
        hidden = file.with_name(f".{file.name}.part")
        pq.write_table(rows, hidden, compression="zstd")
        hidden.rename(file)
        self._files_of[hour].append(file)

    def _rows(self, scrape: Scrape) -> Iterator[tuple[Any, ...]]:
        at = (self._cluster, datetime.fromtimestamp(scrape.at, UTC), scrape.broker_id)
        yield (*at, UP, "", "", "", 0.0 if scrape.problem else 1.0)
        for sample in scrape.samples:
            yield (*at, *sample)


def _hour_of(row: tuple[Any, ...]) -> datetime:
    at: datetime = row[1]
    return at.replace(minute=0, second=0, microsecond=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where to look, how often and how long."""
    add_clusters_option(parser)
    parser.add_argument(
        "--endpoint",
        action="append",
        default=[],
        metavar="BROKER_ID=URL",
        help="a broker's metrics, such as 1=http://broker-1:9404/metrics; may be repeated",
    )
    parser.add_argument(
        "--interval", type=_seconds, default=15.0, metavar="S", help="seconds; default 15"
    )
    parser.add_argument(
        "--duration", type=_seconds, metavar="S", help="seconds; default until Ctrl-C"
    )


def run(job: Job) -> None:
    """Collect until the duration is over or a signal comes.

    Raises:
        UsageError: An option is missing or wrong.
        InfrastructureError: No endpoint ever answered, or a file cannot be written.
    """
    endpoints = _endpoints(job.options.endpoint)
    if not job.options.out:
        message = "--out is missing: name the folder that the files are written to."
        raise UsageError(message)
    folder = local_folder(job.options.out)
    if job.options.dry_run:
        job.counts["would_ask"] = list(endpoints.values())
        job.counts["would_write"] = str(folder / FOLDER)
        return
    files = CollectedFiles(folder, cluster_id_of(job.options) or "")
    asyncio.run(_until_stopped(job, files, endpoints))
    job.counts |= {
        "rows_out": files.rows,
        "files": files.files,
        "scrapes": files.scrapes,
        "scrapes_up": files.up,
        "scrapes_with_quotas": files.with_quotas,
    }
    if files.scrapes and not files.up:
        urls = ", ".join(endpoints.values())
        message = f"No endpoint ever answered: look at {urls}."
        raise InfrastructureError(message)


async def _until_stopped(job: Job, files: CollectedFiles, endpoints: Endpoints) -> None:
    loop = asyncio.get_running_loop()
    collecting = asyncio.ensure_future(_collect(job, files, endpoints))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, collecting.cancel)
    try:
        await collecting
    except asyncio.CancelledError:
        job.say("stopped; what was collected is written")
    finally:
        _write(job, files)


async def _collect(job: Job, files: CollectedFiles, endpoints: Endpoints) -> None:
    """Ask every endpoint at once; one that does not answer in time holds up nobody."""
    interval_s = job.options.interval
    states: dict[int, str] = {}
    written_at = None
    # A proxy of this shell is not for brokers.
    async with httpx.AsyncClient(
        timeout=min(_MOST_WAIT_S, interval_s), trust_env=False, follow_redirects=True
    ) as client:
        async for at in ticks(interval_s, job.options.duration):
            scrapes = await asyncio.gather(
                *(_ask(client, *endpoint, at) for endpoint in endpoints.items())
            )
            files.add(scrapes)
            for scrape in scrapes:
                if scrape.state != states.get(scrape.broker_id):
                    job.say(f"broker {scrape.broker_id} {scrape.state}")
                states[scrape.broker_id] = scrape.state
            written_at = at if written_at is None else written_at
            if at - written_at >= _FILE_EVERY_S - interval_s:
                _write(job, files)
                written_at = at


def _write(job: Job, files: CollectedFiles) -> None:
    files.write()
    job.say(f"{files.rows} rows of {files.scrapes} scrapes, {files.up} of them up")


def _endpoints(texts: Sequence[str]) -> Endpoints:
    """Read BROKER_ID=URL; a URL without a path means ``/metrics``."""
    endpoints: dict[int, str] = {}
    for text in texts:
        broker, _, url = text.partition("=")
        address = urlsplit(url)
        is_web = address.scheme in ("http", "https") and address.hostname
        if not (broker.isdecimal() and is_web):
            message = (
                "--endpoint: write the broker's id and the address of its metrics, "
                "such as 1=http://broker-1:9404/metrics."
            )
            raise UsageError(message)
        if int(broker) in endpoints:
            message = f"--endpoint names broker {broker} twice: give each broker one address."
            raise UsageError(message)
        path = address.path if address.path.strip("/") else _USUAL_PATH
        endpoints[int(broker)] = address._replace(path=path).geturl()
    if not endpoints:
        message = "--endpoint is missing: name a broker's metrics, as BROKER_ID=URL."
        raise UsageError(message)
    return endpoints


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        message = f"{text!r} is not a number of seconds above 0"
        raise argparse.ArgumentTypeError(message)
    return seconds
