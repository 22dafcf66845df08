"""The run as a page."""

from collections.abc import Sequence

from benchmarks.load_test.asking import Asked
from benchmarks.load_test.steps import IN_ONE_REQUEST, Grown, loaded_ms
from benchmarks.report import grid
from benchmarks.tables import show

_HEAD = """# More and more entities

Written by one run of `python -m benchmarks.load_test` on one machine. Entities are users with
names of 32 random hexadecimal digits and one key; all of them were loaded through the service,
each with its whole audit record. A read that failed shows the
status and the code of its problem. Reads of everything were made once, those of one entity 15 times
(the table has the median)."""


def growth_page(where: Sequence[tuple[str, str]], steps: Sequence[Grown], failure: str) -> str:
    """Return the page in Markdown; ``failure`` is why there are no further steps."""
    rows = [[f"**{name}**", text] for name, text in where]
    sections = [
        _HEAD,
        grid(("", ""), rows),
        "## Reading",
        _reads(steps),
        "## Writing",
        _writes(steps),
    ]
    sections += ["## Memory", _memory(steps)]
    if failure:
        sections += ["## Where it ended", failure]
    return "\n\n".join(sections) + "\n"


def _reads(steps: Sequence[Grown]) -> str:
    kinds = list(steps[0].reads) if steps else []
    columns = ("ms, and megabytes", *(f"{step.entities:,}" for step in steps))
    return grid(columns, [[kind, *(_cell(step.reads[kind]) for step in steps)] for kind in kinds])


def _cell(asked: Asked) -> str:
    if not asked.worked:
        return f"{asked.status} {asked.code} after {show(asked.ms)}"
    if asked.megabytes < 1:
        return show(asked.ms)
    return f"{show(asked.ms)} (first byte {show(asked.first_ms)}; {asked.megabytes:.1f} MB)"


def _writes(steps: Sequence[Grown]) -> str:
    columns = ("ms", *(f"{step.entities:,}" for step in steps))
    rows = [
        [f"{IN_ONE_REQUEST:,} new entities, median", *(show(loaded_ms(step)) for step in steps)],
        ["one alteration more", *(_cell(step.single) for step in steps)],
        ["requests that failed and were repeated", *(_failures(step) for step in steps)],
    ]
    return grid(columns, rows)


def _failures(step: Grown) -> str:
    codes = [f"{item.status} {item.code}" for item in step.loading if not item.worked]
    return f"{len(codes)}: {', '.join(sorted(set(codes)))}" if codes else "0"


def _memory(steps: Sequence[Grown]) -> str:
    columns = ("MiB, and the most so far", *(f"{step.entities:,}" for step in steps))
    rows = [
        ["service", *(f"{now:,} ({most:,})" for now, most in (step.service_mib for step in steps))],
        ["broker", *(f"{now:,} ({most:,})" for now, most in (step.broker_mib for step in steps))],
        ["the service is alive", *("yes" if step.alive else "**no**" for step in steps)],
    ]
    return grid(columns, rows)
