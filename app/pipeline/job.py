"""What every job has: its options as a whole, what it counts, and how it reports."""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
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
from app.pipeline.spark import spark_session
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

_OF_FILES: Final = ("ingest", "run")
"""Jobs whose ``--input`` is no folder of tables; a pattern of files, too."""

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
}
"""The tables below ``--input`` that a job reads; what it finds beside them is not its input.

``ingest`` and ``run`` read files or topics, which are in ``Job.read`` once they are found.
"""

_QUOTAS_READ: Final[Mapping[str, Sequence[Table]]] = {
    **dict.fromkeys(("resolve", "whatif", "stale", "run"), (QUOTA_VERSION,)),
    "drift": (QUOTA_VERSION, QUOTA_SNAPSHOT, QUOTA_FAILED, QUOTA_CONFLICT),
}
"""The tables below ``--quotas`` that a job reads."""

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

_FOLDERS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "input": (
        "that the job before wrote with --out",
        (*("collect", "synth", "snapshot", "history", "drift", "doctor", "warm"), *_OF_FILES),
    ),
    "quotas": ("that snapshot, history or synth wrote", ()),
    "out": ("that the tables are written to", ("collect", "plot", "doctor", "warm")),
}
"""The options that name a folder of tables: which it is, and the jobs that do without it."""


@dataclass
class Job:
    """One run of one job.

    Attributes:
        counts: What the report says: rows in, rows out of each table, and so on.
        findings: How many findings there are, for ``--fail-on findings``.
        failed_checks: Those of ``dq_result`` that ``--fail-on dq`` looks at.
        unlimited: The sentence of ``without_quotas`` about the input.
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
    unlimited: str = ""
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
        # Of inputs that overlap the first wins, so that their order counts.
        files = [
            files_of(self.session, [lake.address(table)])
            for lake, table in self.tables_read()
            if not lake.is_catalog
        ]
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
        options, name = self.options, f"quota-pipeline {self.name}"
        started = spark_session(name, master=options.master, settings=dict(options.conf))
        return self.opened.enter_context(started)

    def lakes(self) -> list[Lake]:
        """Return where the tables of ``--input`` are, each once; without it that of the output."""
        uris = dict.fromkeys(self.options.input or ())
        return [Lake(self.session, uri) for uri in uris] or [self.lake()]

    def lake(self) -> Lake:
        """Return where the tables are written: ``--catalog`` or ``--out``."""
        catalog: str | None = self.options.catalog
        return Lake(self.session, catalog or self.options.out, catalog=bool(catalog))

    def quotas(self) -> Lake:
        """Return where the quotas are: below ``--quotas``, else in ``--catalog``."""
        return Lake(self.session, self.options.quotas) if self.options.quotas else self.lake()

    def tables_read(self) -> list[tuple[Lake, Table]]:
        """Return the tables that the job reads, and where they are; one may be missing."""
        tables, of_quotas = READS.get(self.name, ()), _QUOTAS_READ.get(self.name, ())
        inputs = self.lakes() if tables else []
        quotas = [(self.quotas(), table) for table in of_quotas]
        return [*((lake, table) for lake in inputs for table in tables), *quotas]

    def say_plan(self, writes: Sequence[Table]) -> None:
        """Say what the job would read and write, for ``--dry-run``."""
        reads = [lake.address(table) for lake, table in self.tables_read() if lake.has(table)]
        self.counts["would_read"] = reads
        self.counts["would_write"] = [self.lake().address(table) for table in writes]

    def check_folders(self) -> None:
        """Look at the options that name folders of tables, before Spark is started.

        Raises:
            UsageError: One is missing that the job needs, or is what Hadoop takes for a pattern.
        """
        options = vars(self.options)
        for name, (what, optional) in _FOLDERS.items():
            is_needed = name in options and not options["catalog"] and self.name not in optional
            if is_needed and not options[name]:
                message = f"--{name} is missing: name the folder {what}."
                raise UsageError(message)
            value = options.get(name) or ()
            for uri in [value] if isinstance(value, str) else value:
                if PATTERN.search(uri) and not (name == "input" and self.name in _OF_FILES):
                    message = f"--{name} {uri} must be one folder, without {{ }} [ ] * ? and \\."
                    raise UsageError(message)

    def say(self, line: str) -> None:
        """Tell the person at the terminal; never on the standard output."""
        print(f"{self.name}: {line}", file=sys.stderr, flush=True)

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
        if self.unlimited:
            raise DataQualityError(self.unlimited)
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


def without_quotas(observed: Collection[str], limited: Collection[str]) -> str:
    """Return what to do about clusters that have metrics and no quota; '' where all have quotas."""
    without = sorted({*observed} - {*limited})
    others = ", ".join(map(repr, sorted(limited))) or "none"
    sentence = (
        f"No quota is of the cluster {', '.join(map(repr, without))}, so all of its rows are "
        f"unlimited; there are quotas of {others}. Give `collect`, `ingest` and `snapshot` the "
        "same --cluster, Kafka's own id."
    )
    return sentence if without else ""
