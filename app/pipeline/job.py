"""What every job has: its options as a whole, what it counts, and how it reports."""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from app.pipeline.errors import DataQualityError, FindingsError, UsageError
from app.pipeline.folders import files_of
from app.pipeline.lake import Lake
from app.pipeline.options import PATTERN
from app.pipeline.spark import PARTITIONS, spark_failures, spark_session, tasks_for
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    QUOTA_CONFLICT,
    QUOTA_FAILED,
    QUOTA_SNAPSHOT,
    QUOTA_VERSION,
    RATE_MINUTE,
    SERIES,
    SERIES_LIMIT,
    UTILIZATION_DAILY,
    Table,
)

READS: Final[Mapping[str, Sequence[Table]]] = {
    "history": (QUOTA_SNAPSHOT,),
    "resolve": (SERIES,),
    "utilization": (RATE_MINUTE, SERIES, SERIES_LIMIT, DIM_BUCKET),
    "incidents": (BUCKET_HOUR, DIM_BUCKET, RATE_MINUTE, SERIES, SERIES_LIMIT),
    "whatif": (RATE_MINUTE, SERIES),
    "export": (RATE_MINUTE, SERIES, SERIES_LIMIT, UTILIZATION_DAILY),
    "rightsize": (BUCKET_HOUR, DIM_BUCKET),
    "stale": (SERIES, SERIES_LIMIT, UTILIZATION_DAILY, DIM_BUCKET),
    "overcommit": (BUCKET_HOUR,),
    "drift": (),
}
"""The tables below ``--input`` that a job reads; what it finds beside them is not its input.

``ingest`` and ``run`` read files or topics, which are in ``Job.read`` once they are found.
"""

QUOTAS_READ: Final[Mapping[str, Sequence[Table]]] = {
    "drift": (QUOTA_VERSION, QUOTA_SNAPSHOT, QUOTA_FAILED, QUOTA_CONFLICT),
}
"""The tables below ``--quotas`` that a job reads, where it is more than ``QUOTA_VERSION``."""

_NO_RESULT: Final = frozenset(
    {
        *("out", "pg", "recommendations", "master", "conf", "json", "plot", "explain", "dry_run"),
        *("command", "fail_on", "token_file", "kafka_config", "input", "quotas", "offsets"),
        *("prometheus_token_file", "prometheus_user", "prometheus_password_file"),
        *("step", "clusters_file"),
    }
)
"""Options that change nothing in the result, or name what is read."""

_FILES: Final = frozenset(("map", "alterations", "capacity", "inventory", "desired", "callback"))
"""Options that name a file whose content decides the result."""

_FOLDERS: Final[Mapping[str, str]] = {
    "input": "that the job before wrote with --out",
    "quotas": "that snapshot, history or synth wrote",
    "out": "that the tables are written to",
}
"""The options that name a folder of tables, and which it is."""

_OF_PATTERNS: Final = ("ingest", "run")
"""Jobs whose ``--input`` names files, by a pattern, too."""


@dataclass
class Job:
    """One run of one job.

    Attributes:
        counts: What the report says: rows in, rows out of each table, and so on.
        findings: How many findings there are, for ``--fail-on findings``.
        failed_checks: Those of ``dq_result`` that ``--fail-on dq`` looks at.
        without_quotas: Clusters of the input of which there is no quota.
        read: What is read beside tables, such as offsets: set it before ``run_id`` is asked for.
        summary: What the report ends with, for people.
        record: The row of the run in Postgres, while ``--pg`` writes one; else null.
        begun: When, by the clock of ``time.monotonic``.
        opened: Stops the Spark that was started for the job.
    """

    name: str
    options: argparse.Namespace
    counts: dict[str, Any] = field(default_factory=dict)
    findings: int = 0
    quarantined: int = 0
    failed_checks: list[str] = field(default_factory=list)
    without_quotas: list[str] = field(default_factory=list)
    with_quotas: list[str] = field(default_factory=list)
    read: dict[str, Any] = field(default_factory=dict)
    summary: Sequence[str] = ()
    record: Any = None
    begun: float = field(default_factory=time.monotonic)
    opened: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def run_id(self) -> str:
        """What ``fingerprint`` returned first; what the run writes makes no other run of it."""
        return self.fingerprint()

    def fingerprint(self) -> str:
        """Return what is the same where the result is: of job, options, what is read, release."""
        options = {name: value for name, value in vars(self.options).items() if value is not None}
        decisive = {
            name: Path(value).read_text(errors="replace") if name in _FILES else str(value)
            for name, value in options.items()
            if name not in _NO_RESULT
        }
        tables = READS.get(self.name, ())
        uris = options.get("input") or ()
        folders = [f"{uri.rstrip('/')}/{table.name}" for uri in uris for table in tables]
        if quotas := options.get("quotas"):
            tables_of_quotas = QUOTAS_READ.get(self.name, (QUOTA_VERSION,))
            folders += [f"{quotas.rstrip('/')}/{table.name}" for table in tables_of_quotas]
        # Of inputs that overlap the first wins, so that their order counts.
        files = [files_of(self.session, [folder]) for folder in folders]
        inputs_of_run = [self.name, decisive, files, self.read, version("kafka-quota-service")]
        text = json.dumps(inputs_of_run, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def session(self) -> SparkSession:
        """Spark, as it is started where it is asked for first.

        Raises:
            InfrastructureError: It does not start.
        """
        self.say("starting Spark ...")
        master, settings = getattr(self.options, "master", None), getattr(self.options, "conf", ())
        name = f"quota-pipeline {self.name}"
        return self.opened.enter_context(
            spark_session(name, master=master, settings=dict(settings))
        )

    def lakes(self) -> list[Lake]:
        """Return where the tables of ``--input`` are, each once; else those of ``--catalog``.

        Raises:
            UsageError: There is none.
        """
        if not self.options.input and self.options.catalog:
            return [self.lake()]
        self.require_names("input")
        return [Lake(self.session, uri) for uri in dict.fromkeys(self.options.input)]

    def lake(self) -> Lake:
        """Return where the tables are written: ``--catalog`` or ``--out``.

        Raises:
            UsageError: There is none.
        """
        if self.options.catalog:
            return Lake(self.session, self.options.catalog, catalog=True)
        self.require_names("out")
        return Lake(self.session, self.options.out)

    def quotas(self) -> Lake:
        """Return where the quotas are: below ``--quotas``, else in ``--catalog``."""
        if self.options.quotas:
            return Lake(self.session, self.options.quotas)
        return self.lake()

    def require_folders(self) -> None:
        """Refuse a folder's name that Hadoop would take for a pattern, which may name anything.

        Raises:
            UsageError: An option names one; files to ingest may be named by a pattern.
        """
        options = vars(self.options)
        named = {name: options.get(name) for name in _FOLDERS}
        if self.name in _OF_PATTERNS:
            del named["input"]
        for name, value in named.items():
            for uri in [value] if isinstance(value, str) else value or ():
                if PATTERN.search(uri):
                    message = f"--{name} {uri} must be one folder, without {{ }} [ ] * ? and \\."
                    raise UsageError(message)

    def require_options(self, *, quotas: bool = False) -> None:
        """Look for what names the tables, before Spark is started.

        Args:
            quotas: whether the job reads ``quota_version`` of ``--quotas``.

        Raises:
            UsageError: ``--input``, ``--out`` or ``--quotas`` is missing.
        """
        if not self.options.catalog:
            self.require_names(*("input", "quotas", "out") if quotas else ("input", "out"))

    def require_names(self, *names: str) -> None:
        """Look for options that name folders.

        Raises:
            UsageError: One is missing.
        """
        for name in names:
            if not getattr(self.options, name):
                message = f"--{name} is missing: name the folder {_FOLDERS[name]}."
                raise UsageError(message)

    def say(self, line: str) -> None:
        """Tell the person at the terminal; never on the standard output."""
        print(f"{self.name}: {line}", file=sys.stderr, flush=True)

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """Give the session, and say in a sentence what it failed of.

        Raises:
            InfrastructureError: Spark does not start, or fails in the block.
        """
        with spark_failures():
            yield self.session

    @contextmanager
    def tasks_for(self, rows: int | None) -> Iterator[None]:
        """Divide what is shuffled in the block as so many rows need, unless ``--conf`` says how.

        Args:
            rows: That are divided at most; null where nobody knows.
        """
        is_free = PARTITIONS not in dict(getattr(self.options, "conf", ()))
        with tasks_for(self.session, rows if is_free else None):
            yield

    def report(self) -> Mapping[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "job": self.name,
            **({} if self.options.dry_run else {"run_id": self.run_id}),
            "seconds": round(time.monotonic() - self.begun, 3),
            "quarantined": self.quarantined,
            "findings": self.findings,
            **self.counts,
        }

    def judge(self) -> None:
        """Raise where a cluster has no quotas, and where ``--fail-on`` asks for it.

        Raises:
            DataQualityError: Checks failed, or rows have no limit for want of quotas.
            FindingsError: There are findings.
        """
        if self.without_quotas:
            names = ", ".join(map(repr, self.without_quotas))
            others = ", ".join(map(repr, self.with_quotas)) or "none"
            message = (
                f"No quota is of the cluster {names}, so all of its rows are unlimited; there are "
                f"quotas of {others}. Give `collect`, `ingest` and `snapshot` the same --cluster, "
                "Kafka's own id."
            )
            raise DataQualityError(message)
        wanted = self.options.fail_on or ()
        if "dq" in wanted and self.failed_checks:
            message = (
                f"These checks of the data failed: {', '.join(self.failed_checks)}. The tables "
                "dq_result and quarantine say why."
            )
            raise DataQualityError(message)
        if "findings" in wanted and self.findings:
            message = f"There are {self.findings} findings."
            raise FindingsError(message)
