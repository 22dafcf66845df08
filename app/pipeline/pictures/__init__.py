"""Pictures of results, each a PNG with the CSV behind it.

Matplotlib takes a second to import, so only who draws imports it.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from app.pipeline.job import Job
from app.pipeline.lake import Lake


def draw_if_asked(job: Job, lakes: Sequence[Lake]) -> None:
    """Draw where ``--plot`` names a folder."""
    if job.options.plot:
        draw_results(job, lakes, job.options.plot)


def draw_results(job: Job, lakes: Sequence[Lake], folder: Path) -> None:
    """Draw use beside limits, and advice where its tables are; name the files in the report.

    Args:
        lakes: Where the tables are; what is missing makes an empty picture that says so.
        folder: Of this machine, where the files go.

    Raises:
        OSError: They cannot be written.
    """
    from app.pipeline.pictures import advice, style, usage  # noqa: PLC0415

    advised = {
        name: picture
        for name, (table, picture) in advice.PICTURES.items()
        if any(lake.has(table) for lake in lakes)
    }
    style.draw(job, lakes, folder, {**usage.PICTURES, **advised})


def draw_timelines(
    job: Job, lakes: Sequence[Lake], folder: Path, run_id: str | None = None
) -> None:
    """Draw what ``whatif`` found in the run, without an id in the last by its name, likewise."""
    from app.pipeline.pictures import style, whatif  # noqa: PLC0415

    picture = style.Picture(partial(whatif.draw_timelines, run_id=run_id), whatif.HEADER)
    style.draw(job, lakes, folder, {"whatif_timeline": picture})
