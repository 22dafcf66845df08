"""Draw results: a heat map, rates against limits, percentiles, what-ifs; PNG and CSV.

Reads ``utilization_daily`` and, below the same or another ``--input``, ``bucket_hour``,
``dim_bucket`` and, for the rates of minutes, ``rate_minute``, ``series`` and ``series_limit``; or
``whatif_timeline`` and ``whatif_entity``.
"""

import argparse

from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.options import local_folder
from app.pipeline.pictures import draw_results, draw_timelines
from app.pipeline.tables import RATE_MINUTE, UTILIZATION_DAILY, WHATIF_TIMELINE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the common options alone."""
    parser.epilog = "--out DIR or --plot DIR is the folder for the pictures, on this machine."


def run(job: Job) -> None:
    """Draw into ``--out``.

    Raises:
        UsageError: ``--input`` or ``--out`` is missing, or no input has ``utilization_daily``.
        OSError: The pictures cannot be written.
    """
    target = local_folder(job.options.out) if job.options.out else job.options.plot
    if not target:
        message = "--out is missing: name the folder for the pictures."
        raise UsageError(message)
    lakes = job.lakes()
    has_days, has_answers = (
        any(lake.has(table) for lake in lakes) for table in (UTILIZATION_DAILY, WHATIF_TIMELINE)
    )
    if not (has_days or has_answers):
        message = (
            f"There is no table utilization_daily in {', '.join(lake.name for lake in lakes)}; "
            "run the job utilization, and name its --out as --input."
        )
        raise UsageError(message)
    if job.options.dry_run:
        job.counts["would_write"] = [str(target)]
        return
    if has_answers:
        draw_timelines(job, lakes, target)
    if not has_days:
        return
    if not any(lake.has(RATE_MINUTE) for lake in lakes):
        job.say("without rate_minute no rates are drawn; name its folder as --input too.")
    draw_results(job, lakes, target)
