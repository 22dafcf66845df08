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
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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
from app.pipeline.options import OF_HOUR, local_folder, number_option
from app.pipeline.tables import Table

_MOST_WAIT_S: Final = 10.0
_FILE_EVERY_S: Final = 60.0

COLLECTED: Final = Table(
    "collected",
    """cluster_id string, ts timestamp, broker_id int, metric string, resource string, user string,
    client_id string, value double""",
    (),
    (),
)
"""What is written, and ``ingest`` reads."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {"int": pa.int32(), "string": pa.string(), "double": pa.float64()}
_SCHEMA: Final = pa.schema(
    (name, _TYPES.get(kind, _TIME)) for name, kind in map(str.split, COLLECTED.ddl.split(","))
)


@dataclass(frozen=True)
class Scrape:
    """What one endpoint answered at one time, in seconds since 1970.

    ``problem`` says why there are no samples; null where the endpoint answered.
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
    """Wait for each multiple of the interval, from the next on; the first comes in any case.

    The duration counts from the first on; null never ends.
    """
    at = first = _next(interval_s)
    while duration_s is None or at == first or at < first + duration_s:
        await asyncio.sleep(max(0.0, at - time.time()))
        yield at
        # A machine that slept misses some.
        at = max(at + interval_s, _next(interval_s))


def _next(interval_s: float) -> float:
    return math.ceil(time.time() / interval_s) * interval_s


async def _ask(client: httpx.AsyncClient, broker_id: int, url: str, at: float) -> Scrape:
    deadline_s = client.timeout.read
    try:
        async with asyncio.timeout(deadline_s):
            answer = await client.get(url)
        answer.raise_for_status()
        samples = await asyncio.to_thread(lambda: list(quota_samples(answer.content.decode())))
        return Scrape(at, broker_id, samples)
    except httpx.HTTPStatusError as error:
        problem = f"answers with status {error.response.status_code}"
    except (TimeoutError, httpx.TimeoutException):
        problem = f"does not answer within {deadline_s:g} s"
    except httpx.HTTPError as error:
        problem = f"cannot be reached ({error})"
    except (httpx.InvalidURL, ValueError) as error:
        problem = f"answers something else than Prometheus text ({error})"
    return Scrape(at, broker_id, problem=problem)


class CollectedFiles:
    """Gathers scrapes and writes them, a file at a time, below ``OUT/collected``.

    ``counts`` are of rows and files that were written; of scrapes, those of them that an endpoint
    answered, and those that had a quota metric.
    """

    def __init__(self, folder: Path, cluster: str) -> None:
        """Make the folder.

        Raises:
            InfrastructureError: It cannot be made.
        """
        names = ("rows_out", "files", "scrapes", "scrapes_up", "scrapes_with_quotas")
        self.counts = Counter(dict.fromkeys(names, 0))
        self._folder = folder / COLLECTED.name
        self._cluster = cluster
        self._waiting: defaultdict[datetime, list[tuple[Any, ...]]] = defaultdict(list)
        self._files_of: defaultdict[datetime, list[Path]] = defaultdict(list)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{self._folder} cannot be made: {error.strerror}. Name another --out."
            raise InfrastructureError(message) from error

    def add(self, scrapes: Iterable[Scrape]) -> None:
        """Add scrapes to the next file."""
        for scrape in scrapes:
            is_up, has_quotas = scrape.problem is None, bool(scrape.samples)
            self.counts.update(scrapes=1, scrapes_up=is_up, scrapes_with_quotas=has_quotas)
            at = datetime.fromtimestamp(scrape.at, UTC)
            position = (self._cluster, at, scrape.broker_id)
            rows = [(UP, "", "", "", float(is_up)), *scrape.samples]
            hour = at.replace(minute=0, second=0, microsecond=0)
            self._waiting[hour] += ((*position, *row) for row in rows)

    def write(self) -> None:
        """Write what waits, a file for each hour, and make one of the files of earlier hours.

        Raises:
            OSError: A file cannot be written; its rows wait for the next.
        """
        for hour, rows in [*self._waiting.items()]:
            columns = zip(*rows, strict=True)
            named = dict(zip(_SCHEMA.names, columns, strict=True))
            self._write_file(hour, pa.table(named, _SCHEMA))
            self.counts.update(rows_out=len(rows), files=1)
            del self._waiting[hour]
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
        file = self._folder / f"{OF_HOUR}{hour:%Y%m%dT%H}-{uuid4().hex[:8]}.parquet"
        hidden = file.with_name(f".{file.name}.part")
        pq.write_table(rows, hidden, compression="zstd")
        hidden.rename(file)
        self._files_of[hour].append(file)


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
    seconds: Mapping[str, Any] = {"type": number_option(0.001, 1e9), "metavar": "S"}
    parser.add_argument("--interval", **seconds, default=15.0, help="seconds; default: 15")
    parser.add_argument("--duration", **seconds, help="seconds; default: until Ctrl-C")


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
        job.counts["would_write"] = str(folder / COLLECTED.name)
        return
    files = CollectedFiles(folder, cluster_id_of(job.options) or "")
    asyncio.run(_until_stopped(job, files, endpoints))
    job.counts |= files.counts
    if files.counts["scrapes"] and not files.counts["scrapes_up"]:
        message = f"No endpoint ever answered: look at {', '.join(endpoints.values())}."
        raise InfrastructureError(message)


async def _until_stopped(job: Job, files: CollectedFiles, endpoints: Mapping[int, str]) -> None:
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


async def _collect(job: Job, files: CollectedFiles, endpoints: Mapping[int, str]) -> None:
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
    rows, _, scrapes, up, _ = files.counts.values()
    job.say(f"{rows} rows of {scrapes} scrapes, {up} of them up")


def _endpoints(texts: Sequence[str]) -> Mapping[int, str]:
    """Return brokers' addresses by BROKER_ID=URL; a URL without a path means ``/metrics``."""
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
        path = address.path if address.path.strip("/") else "/metrics"
        endpoints[int(broker)] = address._replace(path=path).geturl()
    if not endpoints:
        message = "--endpoint is missing: name a broker's metrics, as BROKER_ID=URL."
        raise UsageError(message)
    return endpoints
