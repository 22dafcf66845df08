"""Store Spark's classes on this machine as Java has parsed them: later runs start sooner.

Runs all steps over a made-up day, in a folder of its own, and writes one file of about 180 MB
below ``~/.cache/kafka-quota-service``. Do it once for each version of Java, of Spark and of this
program: an archive of others is ignored.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.pipeline.driver_java import archive_of_runs, written_at_exit
from app.pipeline.errors import InfrastructureError
from app.pipeline.job import Job

_SUBMIT: Final = "SPARK_SUBMIT_OPTS"
"""Options of the JVM that Spark's launcher starts."""

_SIZES: Final = ("--observations", "20000", "--entities", "200", "--shape", "parquet")
_CHOSEN: Final = ("--format", "parquet", "--cluster", "synth", "--last", "1d")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "It takes about two minutes and needs no option."


def run(job: Job) -> None:
    """Write the archive, in place of the former one.

    Raises:
        InfrastructureError: A run fails, or Java writes no archive.
    """
    archive = archive_of_runs()
    if job.options.dry_run:
        job.counts["would_write"] = [str(archive)]
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    # A run that takes its classes from an archive writes none.
    archive.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        _run("synth", *_SIZES, "--out", folder)
        with written_at_exit(archive) as options:
            tables = ("--input", str(Path(folder) / "parquet"), "--quotas", folder, "--out", folder)
            _run("run", *_CHOSEN, *tables, java=options)
    if not archive.exists():
        message = (
            "Java wrote no archive of classes: it lacks that of its own, lib/server/classes.jsa "
            "(`java -Xshare:dump` makes it)."
        )
        raise InfrastructureError(message)
    job.counts |= {"archive": str(archive), "bytes": archive.stat().st_size}


def _run(*arguments: str, java: str = "") -> None:
    """Run a job in a process of its own: Java writes the archive when it ends.

    Raises:
        InfrastructureError: It fails.
    """
    options = f"{os.environ.get(_SUBMIT, '')} {java}"
    command = (sys.executable, "-m", "app.pipeline.main", *arguments)
    # The report of this job alone goes to the standard output.
    ended = subprocess.run(
        command, env={**os.environ, _SUBMIT: options}, stdout=subprocess.DEVNULL, check=False
    )
    if ended.returncode:
        message = f"`quota-pipeline {arguments[0]}` of a made-up day ended with {ended.returncode}"
        raise InfrastructureError(message)
