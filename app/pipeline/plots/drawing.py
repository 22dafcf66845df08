"""Pictures of results, each a PNG with the CSV behind it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from app.pipeline.job import Job
from app.pipeline.plots import heat_map, percentiles, rate_vs_limit
from app.pipeline.plots.data import Results
from app.pipeline.plots.style import save, save_rows, style

Drawing = Callable[[Results], tuple[Figure, list[Sequence[Any]]]]

_PICTURES: Final[Sequence[tuple[str, Drawing, Sequence[str]]]] = (
    ("utilization_heat_map", heat_map.heat_map, heat_map.HEADER),
    ("rate_against_limit", rate_vs_limit.rates, rate_vs_limit.HEADER),
    ("percentile_ladder", percentiles.ladder, percentiles.HEADER),
)


def draw(job: Job, folders: Sequence[Path], place: Path) -> None:
    """Draw all pictures into a folder, and name the files in the report.

    Args:
        job: Has the cluster and the period.
        folders: Where the tables are; what is missing makes an empty picture that says so.
        place: Where the files go.

    Raises:
        OSError: They cannot be written.
    """
    place.mkdir(parents=True, exist_ok=True)
    since, until = job.period()
    results = Results(folders, job.options.cluster, since, until)
    files: list[str] = []
    with style():
        for name, drawing, header in _PICTURES:
            figure, rows = drawing(results)
            files.append(str(save(figure, place / f"{name}.png")))
            files.append(str(save_rows(place / f"{name}.csv", header, rows)))
            job.counts.setdefault("drawn", {})[name] = len(rows)
    job.counts["pictures"] = files


def draw_if_asked(job: Job, folders: Sequence[Path]) -> None:
    """Draw where ``--plot`` names a folder."""
    if job.options.plot:
        draw(job, folders, Path(job.options.plot).absolute())
