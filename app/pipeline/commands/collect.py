"""Poll the brokers' Prometheus endpoints, and write what they say of quotas; without Spark.

All endpoints are asked at once, at multiples of an interval. Below ``OUT/collected`` each file of
Parquet has one row for each sample, its labels as exported, and one row ``up`` (1 or 0) for each
scrape of each broker: cluster_id, ts (UTC, the time at which all endpoints were asked), broker_id,
metric, resource, user, client_id, value. A file is written each minute, and complete as soon as it
can be seen. Ctrl-C ends it, with what was collected.
"""

import argparse
import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from app.domain.broker_metrics import Sample, quota_samples
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.job import Job

_MOST_WAIT_S: Final = 10.0
_USUAL_PATH: Final = "/metrics"


@dataclass(frozen=True)
class Endpoint:
    """Where one broker's metrics are."""

    broker_id: int
    url: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Read BROKER_ID=URL; a URL without a path means ``/metrics``.

        Raises:
            UsageError: It has another form.
        """
        broker, _, url = text.partition("=")
        address = urlsplit(url)
        if (
            not broker.isdecimal()
            or address.scheme not in ("http", "https")
            or not address.hostname
        ):
            message = (
                f"--endpoint {text}: write the broker's id and the address of its metrics, "
                "such as 1=http://broker-1:9404/metrics."
            )
            raise UsageError(message)
        path = address.path if address.path.strip("/") else _USUAL_PATH
        return cls(int(broker), address._replace(path=path).geturl())


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


class Scraper:
    """Asks every endpoint at once; one that does not answer in time holds up nobody."""

    def __init__(self, endpoints: Sequence[Endpoint], interval_s: float) -> None:
        """Take the endpoints; each has an interval, at most 10 s, to answer."""
        self._endpoints = endpoints
        self._deadline_s = min(_MOST_WAIT_S, interval_s)
        # A proxy of this shell is not for brokers.
        self._client = httpx.AsyncClient(
            timeout=self._deadline_s, trust_env=False, follow_redirects=True
        )

    async def __aenter__(self) -> Self:
        """Begin; connections stay open between scrapes."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def scrape(self, at: float) -> list[Scrape]:
        """Ask all; return what each answered, in their order."""
        return await asyncio.gather(*(self._ask(endpoint, at) for endpoint in self._endpoints))

    async def _ask(self, endpoint: Endpoint, at: float) -> Scrape:
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._client.get(endpoint.url)
            answer.raise_for_status()
            samples = await asyncio.to_thread(_samples, answer)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            return Scrape(at, endpoint.broker_id, problem=_sentence(error, self._deadline_s))
        return Scrape(at, endpoint.broker_id, samples)


def _samples(answer: httpx.Response) -> list[Sample]:
    return list(quota_samples(answer.content.decode()))


def _sentence(error: Exception, deadline_s: float) -> str:
    match error:
        case httpx.HTTPStatusError():
            return f"answers with status {error.response.status_code}"
        case TimeoutError() | httpx.TimeoutException():
            return f"does not answer within {deadline_s:g} s"
        case httpx.HTTPError():
            return f"cannot be reached ({error})"
        case _:
            return f"answers something else than Prometheus text ({error})"


def states(scrapes: Sequence[Scrape]) -> Mapping[int, str | None]:
    """Return each broker's problem."""
    return {scrape.broker_id: scrape.problem for scrape in scrapes}


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


_FILE_EVERY_S: Final = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where to look, how often and how long."""
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
        job.counts["would_ask"] = [endpoint.url for endpoint in endpoints]
        job.counts["would_write"] = str(folder / "collected")
        return
    collection = _Collection(job, CollectedFiles(folder, job.options.cluster or ""))
    asyncio.run(_until_stopped(collection, endpoints))
    collection.report(endpoints)


@dataclass
class _Collection:
    """What was collected so far."""

    job: Job
    files: CollectedFiles
    scrapes: int = 0
    up: int = 0
    problems: Mapping[int, str | None] = field(default_factory=dict)
    written_at: float | None = None

    def take(self, at: float, scrapes: Sequence[Scrape]) -> None:
        """Keep the scrapes of one time; write a file where a minute is over."""
        self.files.add(scrapes)
        self.scrapes += len(scrapes)
        self.up += sum(scrape.problem is None for scrape in scrapes)
        self._tell(states(scrapes))
        self.written_at = at if self.written_at is None else self.written_at
        if at - self.written_at >= _FILE_EVERY_S - self.job.options.interval:
            self.write()
            self.written_at = at

    def write(self) -> None:
        """Write what waits, and say how far it is."""
        self.files.write()
        self.job.say(f"{self.files.rows} rows of {self.scrapes} scrapes, {self.up} of them up")

    def report(self, endpoints: Sequence[Endpoint]) -> None:
        """Fill the job's report.

        Raises:
            InfrastructureError: No endpoint ever answered.
        """
        self.job.counts |= {
            "rows_out": self.files.rows,
            "files": self.files.files,
            "scrapes": self.scrapes,
            "scrapes_up": self.up,
        }
        if self.scrapes and not self.up:
            urls = ", ".join(endpoint.url for endpoint in endpoints)
            message = f"No endpoint ever answered: look at {urls}."
            raise InfrastructureError(message)

    def _tell(self, problems: Mapping[int, str | None]) -> None:
        for broker, problem in problems.items():
            if problem != self.problems.get(broker, ""):
                self.job.say(f"broker {broker} {problem or 'answers'}")
        self.problems = problems


async def _until_stopped(collection: _Collection, endpoints: Sequence[Endpoint]) -> None:
    loop = asyncio.get_running_loop()
    collecting = asyncio.ensure_future(_collect(collection, endpoints))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, collecting.cancel)
    try:
        await collecting
    except asyncio.CancelledError:
        collection.job.say("stopped; what was collected is written")
    finally:
        collection.write()


async def _collect(collection: _Collection, endpoints: Sequence[Endpoint]) -> None:
    options = collection.job.options
    async with Scraper(endpoints, options.interval) as scraper:
        async for at in ticks(options.interval, options.duration):
            collection.take(at, await scraper.scrape(at))


def _endpoints(texts: Sequence[str]) -> list[Endpoint]:
    endpoints = [Endpoint.of(text) for text in texts]
    if not endpoints:
        message = "--endpoint is missing: name a broker's metrics, as BROKER_ID=URL."
        raise UsageError(message)
    brokers = [endpoint.broker_id for endpoint in endpoints]
    twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
    if twice:
        message = f"--endpoint names broker {twice[0]} twice: give each broker one address."
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
