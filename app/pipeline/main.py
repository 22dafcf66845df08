"""``quota-pipeline JOB``."""

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import yaml

from app.command_line import CommandParser, complain, redact, run_to_the_end
from app.pipeline.errors import InfrastructureError, PipelineError, UsageError
from app.pipeline.options import add_common_options

JOBS: Final[Mapping[str, str]] = {
    "collect": "poll the brokers' Prometheus endpoints and write their quota metrics",
    "synth": "make up observations and quotas, in every shape that ingest reads",
    "ingest": "read metrics of any shape into one row for each minute, broker and series",
    "snapshot": "write the current quotas of a service",
    "history": "write which quotas held when, from the audit log",
    "resolve": "find the limit and the bucket of each series",
    "utilization": "sum up each bucket's hours and days beside its limit",
    "incidents": "find the periods in which a bucket was throttled or over its limit",
    "whatif": "find who would have been throttled under other quotas",
    "export": "write minutes of names, minutes beside limits, or histograms, for other tools",
    "rightsize": "advise a value for each stored quota, from what was used",
    "stale": "find stored quotas that do nothing, and clients without a quota",
    "overcommit": "compare what brokers have promised with what they can do",
    "drift": "find where the desired quotas, the audit log and the live quotas differ",
    "run": "run all steps from ingest to incidents in one Spark application",
    "plot": "draw the results",
    "doctor": "look for what makes results wrong or missing",
    "warm": "store Spark's classes on this machine, so that later runs start sooner",
}
"""Each is the module of the same name in ``app.pipeline.commands``, with its line of help."""

_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code.

    Returns:
        0 done; 2 wrong usage; 3 data quality and 4 findings, where ``--fail-on`` asks for them;
        5 a failure of Spark, of a broker, of a database or of a disk, where the report cannot be
        written, too; 130 after Ctrl-C; 141 where the reader of the report went away.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    unwritable = InfrastructureError.exit_code
    return run_to_the_end("quota-pipeline", partial(_main, arguments), unwritable=unwritable)


def _main(arguments: Sequence[str]) -> int:
    name = "quota-pipeline"
    try:
        options = _parser(arguments).parse_args(arguments)
        name = f"quota-pipeline {options.job}"
        return _run(options)
    except PipelineError as error:
        complain(f"{name}: {redact(str(error))}")
        if isinstance(error, UsageError) and error.content:
            complain(f"{name}: {redact(error.content)}")
        return error.exit_code
    except ModuleNotFoundError as error:
        complain(f"{error.name} is missing: pip install 'kafka-quota-service[pipeline]'.")
        return PipelineError.exit_code
    except KeyboardInterrupt:
        complain(f"{name}: stopped; what is not published yet is lost.")
        return _INTERRUPTED


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="quota-pipeline",
        description="Find who is near a limit, and which quota sets it.",
        epilog="`quota-pipeline JOB --help` lists the options of a job.",
    )
    release = version("kafka-quota-service")
    parser.add_argument("--version", action="version", version=f"%(prog)s {release}")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, line in JOBS.items():
        job = jobs.add_parser(name, help=line, description=f"{line[0].upper()}{line[1:]}.")
        if name in arguments:
            # Only the job that is asked for is imported: most bring Spark along.
            command = import_module(f"app.pipeline.commands.{name}")
            command.add_arguments(job)
            add_common_options(job)
            job.set_defaults(command=command)
    return parser


def _run(options: argparse.Namespace) -> int:
    from pyarrow import ArrowException  # noqa: PLC0415 - takes its time, as the next does

    from app.pipeline.job import Job  # noqa: PLC0415 - brings Spark along
    from app.pipeline.publishing import record_if_published  # noqa: PLC0415
    from app.pipeline.spark import spark_failures  # noqa: PLC0415

    job = Job(options.job, options)
    job.check_folders()
    try:
        with job.opened, record_if_published(job), spark_failures():
            options.command.run(job)
            report = job.report()
    except (OSError, ArrowException) as error:
        raise InfrastructureError(str(error)) from error
    print_report(report, job.summary, as_json=options.json)
    job.judge()
    return 0


def print_report(report: Mapping[str, Any], summary: Sequence[str], *, as_json: bool) -> None:
    """Print what a job did: JSON in one line, or YAML and the lines of the summary."""
    if as_json:
        print(json.dumps(report, default=str))
        return
    for name, value in json.loads(json.dumps(report, default=str)).items():
        if name != "summary":
            flow = None if isinstance(value, dict | list) else False
            text = yaml.safe_dump({name: value}, sort_keys=False, default_flow_style=flow)
            print(text, end="")
    for line in summary:
        print(line)


if __name__ == "__main__":
    sys.exit(main())
