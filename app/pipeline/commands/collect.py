"""Poll the brokers' Prometheus endpoints, and write what they say of quotas; without Spark.

Below ``OUT/collected`` each file of Parquet has one row for each sample, its labels as exported,
and one row ``up`` (1 or 0) for each scrape of each broker: cluster_id, ts (UTC, the time at which
all endpoints were asked), broker_id, metric, resource, user, client_id, value. A file is written
each minute. Ctrl-C ends it, with what was collected.
"""

import argparse
import asyncio
import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.job import Job
from app.pipeline.sinks.collected_files import CollectedFiles, local_folder
from app.pipeline.sources.scrapes import Endpoint, Scrape, Scraper, states, ticks

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
