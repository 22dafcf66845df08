"""The operator's page lists every problem and every metric, as the code has them.

Where a table here is out of date, this module writes both anew:
``python -m tests.unit.http.test_operating_page``.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app.http.problem_catalog import (
    ALTERATION_PROBLEMS,
    ANALYTICS_PROBLEMS,
    PLAN_PROBLEMS,
    PROBLEMS,
    REQUEST_PROBLEMS,
    SERVICE_PROBLEMS,
    Rows,
)
from app.metrics import Metrics

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operating.md"

PROBLEM_TABLES: Mapping[str, Rows] = {
    "This service and what it depends on": SERVICE_PROBLEMS,
    "Alterations": ALTERATION_PROBLEMS,
    "Requests": REQUEST_PROBLEMS,
    "Analytics": ANALYTICS_PROBLEMS,
    "Plans": PLAN_PROBLEMS,
}


def problem_table(problems: Rows) -> str:
    """Return what each code means and what to do about it."""
    lines = ["| Code | It means | Callers | Operators |", "|---|---|---|---|"]
    lines += [
        f"| `{code}` | {text.cause} | {text.action} | {text.operator} |"
        for (code, _), text in problems.items()
    ]
    return "\n".join(lines)


def problems_section() -> str:
    """Return all tables of problems."""
    return "\n\n".join(
        f"### {title}\n\n{problem_table(problems)}" for title, problems in PROBLEM_TABLES.items()
    )


def metric_rows() -> Iterator[str]:
    """Yield a row for each metric of the service's own."""
    for collector in Metrics().registry._collector_to_names:
        labels = getattr(collector, "_labelnames", None)
        if labels is None:
            continue  # of the process
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        kind = f"{family.type}: {', '.join(f'`{label}`' for label in labels)}".removesuffix(": ")
        yield f"| `{name}` | {kind} | {family.documentation} |"


def metric_table() -> str:
    """Return the table of metrics."""
    return "\n".join(["| Name | Type and labels | Description |", "|---|---|---|", *metric_rows()])


SECTIONS = {"problems": problems_section, "metrics": metric_table}


def section(page: str, name: str) -> re.Match[str]:
    """Return a generated section of the page."""
    found = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end of {name} -->", page, re.DOTALL)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SECTIONS)
def test_the_tables_of_the_page_are_those_of_the_code(name: str):
    assert section(PAGE.read_text(encoding="utf-8"), name)[1] == SECTIONS[name]()


def test_every_problem_is_in_one_table():
    assert sum(len(problems) for problems in PROBLEM_TABLES.values()) == len(PROBLEMS)


def test_texts_of_problems_and_metrics_fit_a_table():
    for text in [*(" ".join(problem.words) for problem in PROBLEMS.values()), *metric_rows()]:
        assert "\n" not in text
    assert not any("|" in " ".join(problem.words) for problem in PROBLEMS.values())


def test_every_metric_explains_itself():
    rows = list(metric_rows())
    assert len(rows) > 20
    for row in rows:
        assert re.fullmatch(r"\| `[a-z_]+` \| \w+(: .+)? \| [A-Z].+\. \|", row), row


def write() -> None:
    """Write the tables anew."""
    page = PAGE.read_text(encoding="utf-8")
    for name, made in SECTIONS.items():
        start, end = section(page, name).span(1)
        page = page[:start] + made() + page[end:]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
