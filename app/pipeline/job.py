"""What every job has: its options as a whole, what it counts, and how it reports."""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from app.pipeline.errors import DataQualityError, FindingsError, UsageError
from app.pipeline.folders import RunFolder, local_folder
from app.pipeline.manifests import manifest_of
from app.pipeline.progress import Progress
from app.pipeline.spark import spark_session
from app.pipeline.task_failures import failures_told


class Command(Protocol):
    """A module of ``app.pipeline.commands``."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that this job alone has."""

    def run(self, job: "Job") -> None:
        """Do the job, or raise a ``PipelineError``."""


@dataclass
class Job:
    """One run of one job.

    Attributes:
        name: Of the job.
        options: The command line, as argparse gives it.
        counts: What the report says: rows in, rows out of each table, and so on.
        findings: How many findings there are, for ``--fail-on findings``.
        quarantined: How many rows were quarantined, for ``--fail-on dq``.
        without_quotas: Clusters of the input of which no quota is known.
        record: The row of the run in Postgres, while ``--pg`` keeps one; else null.
    """

    name: str
    options: argparse.Namespace
    counts: dict[str, Any] = field(default_factory=dict)
    findings: int = 0
    quarantined: int = 0
    without_quotas: list[str] = field(default_factory=list)
    record: Any = None
    begun: float = field(default_factory=time.monotonic)

    @cached_property
    def run_id(self) -> str:
        """The same where the result is: job, options, the files that are read, the release.

        As they are when it is first asked for; what the run writes makes no other run of it.
        """
        ours = ("out", "pg", "master", "conf", "json", "plot", "explain", "dry_run", "command")
        told = {key: str(value) for key, value in vars(self.options).items() if key not in ours}
        places = [
            *(getattr(self.options, "input", None) or ()),
            getattr(self.options, "quotas", None),
        ]
        read = {place: manifest_of(place) for place in places if place}
        text = json.dumps([self.name, told, read, version("kafka-quota-service")], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def say(self, line: str) -> None:
        """Tell the person at the terminal; never on the standard output."""
        print(f"{self.name}: {line}", file=sys.stderr, flush=True)

    def inputs(self) -> list[Path]:
        """Return the folders of ``--input``, each once.

        Raises:
            UsageError: There is none.
        """
        if not self.options.input:
            message = "--input is missing: name the folder that the job before wrote with --out."
            raise UsageError(message)
        return list(dict.fromkeys(local_folder(uri) for uri in self.options.input))

    def output(self) -> RunFolder:
        """Return the folder of ``--out``, ready to be written.

        Raises:
            UsageError: There is none.
            InfrastructureError: It cannot be written.
        """
        if not self.options.out:
            message = "--out is missing: name the folder that the tables are written to."
            raise UsageError(message)
        return RunFolder(local_folder(self.options.out), self.run_id, self.say)

    def period(self) -> tuple[datetime | None, datetime | None]:
        """Return ``--from`` (inclusive) and ``--to`` (exclusive).

        Raises:
            UsageError: The period ends before it begins.
        """
        since, until = self.options.since, self.options.until
        if since and until and since >= until:
            message = "--to must be later than --from: the period would be empty."
            raise UsageError(message)
        return since, until

    @contextmanager
    def spark(self, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
        """Start Spark for the block, and show how far it is.

        Args:
            settings: Of the job; those of ``--conf`` win.

        Raises:
            InfrastructureError: It does not start, or does not do its part in the block.
        """
        self.say(f"starting Spark on {self.options.master} ...")
        wanted = {**(settings or {}), **dict(self.options.conf)}
        with (
            spark_session(
                f"quota-pipeline {self.name}", master=self.options.master, settings=wanted
            ) as session,
            Progress(session, self.say),
            failures_told(),
        ):
            yield session

    def report(self) -> Mapping[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "job": self.name,
            "run_id": self.run_id,
            "seconds": round(time.monotonic() - self.begun, 3),
            "quarantined": self.quarantined,
            "findings": self.findings,
            **self.counts,
        }

    def judge(self) -> None:
        """Raise where a cluster has no quotas, and where ``--fail-on`` asks for it.

        Raises:
            DataQualityError: Rows were quarantined, or rows have no limit for want of quotas.
            FindingsError: There are findings.
        """
        if self.without_quotas:
            names = ", ".join(map(repr, self.without_quotas))
            message = (
                f"No quota is of the cluster {names}, so all of its rows are unlimited: give "
                "`collect`, `ingest` and `snapshot` the same --cluster, Kafka's own id."
            )
            raise DataQualityError(message)
        wanted = self.options.fail_on or ()
        if "dq" in wanted and self.quarantined:
            message = f"{self.quarantined} rows were quarantined; the table quarantine says why."
            raise DataQualityError(message)
        if "findings" in wanted and self.findings:
            message = f"There are {self.findings} findings."
            raise FindingsError(message)
