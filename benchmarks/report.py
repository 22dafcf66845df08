"""The run as a page with pictures, and the environment of the run."""

import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psycopg

from app.java import find_java
from app.localdev.jars import kafka_version
from app.pipeline.pictures.style import BLACK, BLUE, GREY, new_figure, save, style
from benchmarks.competitors.peers import Peers
from benchmarks.measures import Measure, Section, grid, show
from benchmarks.stack import BROKER_HEAP

_PACKAGES = (
    "fastapi",
    "starlette",
    "pydantic",
    "uvicorn",
    "uvloop",
    "httptools",
    "orjson",
    "kafka-python",
    "psycopg",
    "sqlalchemy",
    "structlog",
)


def environment(database_url: str, peers: Peers) -> list[tuple[str, str]]:
    """Return what a reader needs to judge the figures: names and texts."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    where = [
        ("Date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("Commit", _commit()),
        ("Machine", f"{_processor()}, {os.cpu_count()} CPUs, {memory_gib()} GiB, {_system()}"),
        ("Load before the run", f"{os.getloadavg()[0]:.2f} over the last minute"),
        (
            "Broker",
            f"Kafka {kafka_version()}, one node, StandardAuthorizer, {_java()}, heap {BROKER_HEAP}",
        ),
        ("Database", f"PostgreSQL {_postgres(database_url)}, fsync on, on the same machine"),
        ("Service", f"one process, {python}; it looks for changes of others once an hour only"),
        ("Packages", packages),
    ]
    if peers.present:
        versions = "; ".join(f"{peer.name}: {peer.version}" for peer in peers.present)
        where.append(("Other clients", f"{versions}; `kafka-configs`: Kafka {kafka_version()}"))
    where += [(f"Left out: {name}", reason) for name, reason in peers.left_out.items()]
    return where


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "app")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (", changed" if changed else "")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def memory_gib() -> int:
    """Return the memory of the machine."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _system() -> str:
    return f"{platform.system()} {platform.release().partition('-')[0]}"


def _java() -> str:
    printed = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False)
    return printed.stderr.splitlines()[0].replace('"', "")


def _postgres(database_url: str) -> str:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("show server_version").fetchone()
    return str(row[0]) if row else "unknown"


_HEAD = """# Benchmarks

Written by one run of the command below on one machine, all competitors of a table in turns, round
by round. Use the ratios; the absolute figures move with the machine. A ratio is the median over the
rounds of the ratio within a round; p99 is by nearest rank, so with n up to 100 it is the maximum.
"Bare" is the same wire call from Python over this service's own transport on a warm connection,
without HTTP, authentication, authorization, judgement, audit or log. Unless a table says otherwise
all clients are warm and keep their connection. The other clients are pinned, and installed by the
run itself: franz-go's kadm and @platformatic/kafka by their lock files in `benchmarks/competitors`,
Java's AdminClient and `kafka-configs` from the broker's own jars, kafka-python from the packages of
this project."""


def page(
    environment: Sequence[tuple[str, str]], sections: Sequence[Section], pictures: str | None = None
) -> str:
    """Return the page in Markdown.

    Args:
        environment: Of the run: names and texts.
        sections: What was measured.
        pictures: The folder of the pictures, as seen from the page; null where there are none.
    """
    facts = [[f"**{name}**", text] for name, text in environment]
    goals = [goal.row() for section in sections for goal in section.goals]
    texts = [_HEAD, grid(("", ""), facts)]
    texts += ["## Goals", grid(("what", "goal", "found", ""), goals)]
    for section in sections:
        texts += [f"## {section.title}", section.note, grid(section.columns, section.rows)]
        if pictures is not None and section.measures:
            path = f"{pictures}/{file_name(section)}"
            texts.append(f"![{section.title}: medians, from min to max]({path}.png)")
            texts.append(f"[The figures]({path}.csv)")
    return "\n\n".join(texts) + "\n"


_HEADER = ("arm", "n", "min_ms", "p50_ms", "p99_ms", "max_ms")
_LINE = "Milliseconds on a logarithmic scale: the bar is the median, the line from min to max."


def file_name(section: Section) -> str:
    """Return the name of the files of a section, without what comes after the dot."""
    return re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")


def draw(sections: Sequence[Section], folder: Path) -> None:
    """Write a PNG and a CSV for each section that has measures.

    Raises:
        OSError: They cannot be written.
    """
    drawn = [section for section in sections if section.measures]
    if drawn:
        folder.mkdir(parents=True, exist_ok=True)
    for section in drawn:
        file = folder / file_name(section)
        with style():
            _draw(section, file)


def _rows(measures: Mapping[str, Measure]) -> Iterator[list[str]]:
    for name, measure in measures.items():
        figures = (measure.minimum, measure.median, measure.p99, measure.maximum)
        yield [_plain(name), str(measure.n), *(f"{figure:.3f}" for figure in figures)]


def _draw(section: Section, file: Path) -> None:
    names = [_plain(name) for name in section.measures]
    measures = list(section.measures.values())
    medians = [item.median for item in measures]
    below = [item.median - item.minimum for item in measures]
    above = [item.maximum - item.median for item in measures]
    figure = new_figure(section.title, _LINE, 1.2 + 0.34 * len(names))
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
    save(file, figure, _HEADER, _rows(section.measures))


def _plain(name: str) -> str:
    """Return a name without Markdown."""
    return name.replace("`", "").replace("*", "")
