"""How all pictures look.

The colours are Okabe and Ito's: the colour-blind can distinguish them.
"""

import csv
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from app.domain.quota_keys import QUOTA_KEY_RULES, QuotaKey

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
    "axes.axisbelow": True,
    "grid.color": "#EEEEEE",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "xtick.color": GREY,
    "ytick.color": BLACK,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw the block in the common style; a letter that the font lacks is drawn as a box."""
    with mpl.rc_context(_RULES), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def new_figure(title: str, line: str, height: float) -> Figure:
    """Return an empty figure, so many inches high, with what it shows; it belongs to no window."""
    figure = Figure(figsize=(11.0, height), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color=BLACK)
    figure.text(0.012, 0.0, line, ha="left", va="top", fontsize=8.5, color=GREY)
    return figure


def say_empty(axes: Axes, line: str) -> None:
    """Show a sentence where there is nothing to draw."""
    axes.axis("off")
    axes.text(0.5, 0.5, line, ha="center", va="center", fontsize=12, color=GREY)


def legend_above(axes: Axes) -> None:
    """Put the legend above the right end of the axes."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)


def save(figure: Figure, file: Path) -> Path:
    """Write the picture as PNG; the same picture has the same bytes."""
    figure.savefig(file, dpi=150, bbox_inches="tight", pad_inches=0.2, metadata={"Software": None})
    return file


def save_rows(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write what a picture shows as CSV."""
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return file


class Ticks(MaxNLocator):
    """At most five ticks at round numbers: of bytes in the unit that they are written with."""

    def __init__(self, key: str) -> None:
        super().__init__(4)
        self._step = 1024 if "byte" in QUOTA_KEY_RULES[QuotaKey(key)].unit else 1

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the positions between two values."""
        power = int(math.log(vmax, 1024)) if self._step > 1 and vmax > 1 else 0
        unit = self._step**power
        return super().tick_values(vmin / unit, vmax / unit) * unit
