"""A picture for each section that has something to draw, and the figures behind it as CSV."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from app.pipeline.picture_style import BLACK, BLUE, GREY, new_figure, save, save_rows, style
from benchmarks.measures import Measure
from benchmarks.tables import Section, Table, show

_HEADER = ("arm", "n", "min_ms", "p50_ms", "p99_ms", "max_ms")
_LINE = "Milliseconds on a logarithmic scale: the bar is the median, the line from min to max."


def file_name(table: Table) -> str:
    """Return the name of the files of a section, without what comes after the dot."""
    return re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")


def draw(sections: Sequence[Section], folder: Path) -> None:
    """Write a PNG and a CSV for each section that has measures.

    Raises:
        OSError: They cannot be written.
    """
    drawn = [section for section in sections if section.measures]
    if drawn:
        folder.mkdir(parents=True, exist_ok=True)
    for section in drawn:
        file = folder / file_name(section.table)
        save_rows(file.with_suffix(".csv"), _HEADER, rows(section.measures))
        with style():
            _draw(section, file.with_suffix(".png"))


def rows(measures: Mapping[str, Measure]) -> Iterator[list[str]]:
    """Yield the lines of the CSV, in milliseconds."""
    for name, measure in measures.items():
        figures = (measure.minimum, measure.median, measure.p99, measure.maximum)
        yield [_plain(name), str(measure.n), *(f"{figure:.3f}" for figure in figures)]


def _draw(section: Section, file: Path) -> None:
    names = [_plain(name) for name in section.measures]
    measures = list(section.measures.values())
    medians = [item.median for item in measures]
    below = [item.median - item.minimum for item in measures]
    above = [item.maximum - item.median for item in measures]
    figure = new_figure(section.table.title, _LINE, 1.2 + 0.34 * len(names))
    axes = figure.subplots()
    axes.barh(names, medians, color=BLUE, height=0.6)
    axes.errorbar(medians, names, xerr=[below, above], fmt="none", ecolor=BLACK, capsize=2)
    for name, measure in zip(names, measures, strict=True):
        axes.annotate(
            f"{show(measure.median)} ms",
            (measure.maximum, name),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=GREY,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.margins(x=0.12)
    axes.set_xlim(left=10.0 ** math.floor(math.log10(min(item.minimum for item in measures))))
    axes.invert_yaxis()
    save(figure, file)


def _plain(name: str) -> str:
    """Return a name without Markdown."""
    return name.replace("`", "").replace("*", "")
