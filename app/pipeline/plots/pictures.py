"""Pictures of results, each a PNG with the CSV behind it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.plots import heat_map, percentiles, rate_vs_limit
from app.pipeline.plots.style import save, save_rows, style
from app.pipeline.summary import Results

Drawing = Callable[[Results], tuple[Figure, list[Sequence[Any]]]]

_PICTURES: Final[Sequence[tuple[str, Drawing, Sequence[str]]]] = (
    ("utilization_heat_map", heat_map.draw, heat_map.HEADER),
    ("rate_against_limit", rate_vs_limit.draw, rate_vs_limit.HEADER),
    ("percentile_ladder", percentiles.draw, percentiles.HEADER),
)


def draw(job: Job, lakes: Sequence[Lake], folder: Path) -> None:
    """Draw all pictures into a folder of this machine, and name the files in the report.

    Args:
        job: Has the cluster and the period.
        lakes: Where the tables are; what is missing makes an empty picture that says so.
        folder: Where the files go.

    Raises:
        OSError: They cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(lakes, job)
    files: list[str] = []
    with style():
        for name, drawing, header in _PICTURES:
            figure, rows = drawing(results)
            files.append(str(save(figure, folder / f"{name}.png")))
            files.append(str(save_rows(folder / f"{name}.csv", header, rows)))
            job.counts.setdefault("drawn", {})[name] = len(rows)
    job.counts["pictures"] = files


def draw_if_asked(job: Job, lakes: Sequence[Lake]) -> None:
    """Draw where ``--plot`` names a folder."""
    if job.options.plot:
        draw(job, lakes, Path(job.options.plot).absolute())
