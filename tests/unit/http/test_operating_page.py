"""The operator's page lists every problem and every metric, as the code has them.

Where a table here is out of date, this module writes both anew:
``python -m tests.unit.http.test_operating_page``.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.http.problem_catalog import PROBLEMS, WORDS, Words, read_words
from app.metrics import Metrics, exposed_name
from app.postgres.connect import DENYING, LEADING, QUERYING, RECOVERING, WRITING

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operating.md"

PROBLEM_TABLES: Mapping[str, Mapping[str, Words]] = {
    "This service and what it depends on": WORDS["service"],
    "Alterations": WORDS["alterations"],
    "Requests": WORDS["requests"],
    "Analytics": WORDS["analytics"],
    "Plans": WORDS["plans"],
}


def problem_table(problems: Mapping[str, Words]) -> str:
    """Return what each code means and what to do about it."""
    lines = ["| Code | It means | Callers | Operators |", "|---|---|---|---|"]
    lines += [
        f"| `{code}` | {text.cause} | {text.action} | {text.operator} |"
        for code, text in problems.items()
    ]
    return "\n".join(lines)


def problems_section() -> str:
    """Return all tables of problems."""
    return "\n\n".join(
        f"### {title}\n\n{problem_table(problems)}" for title, problems in PROBLEM_TABLES.items()
    )


def metric_rows() -> Iterator[str]:
    """Yield a row for each metric of the service's own."""
    metrics = Metrics()
    metrics.of_cluster("prod")
    for collector in metrics.registry._collector_to_names:
        labels = getattr(collector, "_labelnames", None)
        if labels is None:
            continue  # of the process
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        kind = f"{family.type}: {', '.join(f'`{label}`' for label in labels)}".removesuffix(": ")
        yield f"| `{exposed_name(name)}` | {kind} | {family.documentation} |"


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


WORDED = yaml.safe_load((files("app.http") / "problems.yaml").read_bytes())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({**WORDED, "plans": {}}, "plan-outdated"),
        ({**WORDED, "more": {"no-such-code": WORDED["plans"]["plan-expired"]}}, "no-such-code"),
        ({**WORDED, "more": {"plan-expired": WORDED["plans"]["plan-expired"]}}, "plan-expired"),
    ],
)
def test_words_that_are_not_those_of_the_codes_are_refused(words: Any, named: str):
    with pytest.raises(ValueError, match=named):
        read_words(yaml.safe_dump(words))


@pytest.mark.parametrize("members", [{"title": "A title"}, {"advice": "Do nothing."}])
def test_words_with_a_member_too_few_or_too_many_are_refused(members: dict[str, str]):
    whole = {} if "title" in members else WORDED["plans"]["plan-expired"]
    plans = {**WORDED["plans"], "plan-expired": {**whole, **members}}
    with pytest.raises(TypeError):
        read_words(yaml.safe_dump({**WORDED, "plans": plans}))


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


def test_the_connections_of_a_replica_to_postgres_are_those_of_its_pools():
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    pools = (WRITING, RECOVERING, QUERYING, DENYING, LEADING)
    most = str(sum(pool.size for pool in pools))
    sums = re.findall(r"(\d+) (?:for each\.|connections as they are|times the replicas)", page)
    assert sums == [most, most, most]
    listed = re.search(
        r"\((\d) for alterations, (\d) for recovery, (\d) for queries, (\d) for", page
    )
    assert listed is not None
    assert [int(size) for size in listed.groups()] == [pool.size for pool in pools[:-1]]


if __name__ == "__main__":
    write()
