"""How all pictures look. The colours are Okabe and Ito's: told apart by the colour-blind too."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
BLACK: Final = "#222222"
GREY: Final = "#6B6B6B"
PALE: Final = "#E8E8E8"

_RULES: Final = {
    # Names may hold a dollar sign, which is no formula.
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": BLACK,
    "svg.hashsalt": "quota-pipeline",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw the block in the common style."""
    with mpl.rc_context(_RULES):  # type: ignore[arg-type]
        yield


def new_figure(height: float, width: float = 11.0) -> Figure:
    """Return an empty figure, in inches; it belongs to no window."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def headline(figure: Figure, title: str, line: str) -> None:
    """Put the title on top, and below it what the picture shows."""
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color=BLACK)
    figure.text(0.012, 0.0, line, ha="left", va="top", fontsize=8.5, color=GREY)


def say_empty(axes: Axes, line: str) -> None:
    """Show a sentence where there is nothing to draw."""
    axes.axis("off")
    axes.text(
        0.5, 0.5, line, ha="center", va="center", fontsize=12, color=GREY, transform=axes.transAxes
    )


def save(figure: Figure, place: Path) -> Path:
    """Write the picture as PNG; the same picture has the same bytes."""
    figure.savefig(place, dpi=150, bbox_inches="tight", pad_inches=0.2, metadata={"Software": None})
    return place


def save_rows(place: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write what a picture shows as CSV."""
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return place
