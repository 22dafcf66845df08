"""Draw results: a heat map, rates against limits, a ladder of percentiles; PNG and CSV.

Reads ``utilization_daily`` and, below the same or another ``--input``, ``bucket_minute`` and
``dim_bucket``. Needs no Spark.
"""

import argparse
from pathlib import Path

from app.pipeline.errors import UsageError
from app.pipeline.folders import has_table, local_folder
from app.pipeline.job import Job
from app.pipeline.plots.drawing import draw
from app.pipeline.sinks.result_tables import say_plan
from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET, UTILIZATION_DAILY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "--out DIR (or --plot DIR) names the folder for the pictures."


def run(job: Job) -> None:
    """Draw into ``--out``.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or no input has ``utilization_daily``.
        OSError: The pictures cannot be written.
    """
    folders, place = job.inputs(), _place(job)
    if not any(has_table(folder, UTILIZATION_DAILY) for folder in folders):
        message = (
            f"There is no table utilization_daily in {', '.join(map(str, folders))}; "
            "run the job utilization, and name its --out as --input."
        )
        raise UsageError(message)
    if job.options.dry_run:
        say_plan(job, reads=(UTILIZATION_DAILY, BUCKET_MINUTE, DIM_BUCKET), writes=())
        job.counts["would_write"] = [str(place)]
        return
    if not any(has_table(folder, BUCKET_MINUTE) for folder in folders):
        job.say("without bucket_minute only percentiles are drawn; name its folder as --input too.")
    draw(job, folders, place)


def _place(job: Job) -> Path:
    target = job.options.out or job.options.plot
    if not target:
        message = "--out is missing: name the folder for the pictures."
        raise UsageError(message)
    return local_folder(target)
