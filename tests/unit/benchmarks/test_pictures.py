"""The pictures of a page, and the figures beside them."""

import csv
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.measures import Measure
from benchmarks.pictures import draw, file_name
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.report import page
from benchmarks.tables import Section, Table

MEASURES = {
    "`POST`, `wait: none`": Measure([1.0, 2.0, 4.0]),
    "**slow**": Measure([3_000_000.0, None, 3_000_000.0]),
}
SECTION = Section(Table("Alter 1,000 entities", "A note.", ("arm",), [["a"]]), measures=MEASURES)
BARE = Section(Table("Resolve", "A note.", ("route",), [["a"]]))
PNG = b"\x89PNG\r\n"


def test_files_are_named_after_the_title():
    assert file_name(SECTION.table) == "alter-1-000-entities"


def test_a_picture_has_its_figures_beside_it(tmp_path: Path):
    draw([SECTION, BARE], tmp_path / "pictures")
    folder = tmp_path / "pictures"
    names = ["alter-1-000-entities.csv", "alter-1-000-entities.png"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert (folder / names[1]).read_bytes().startswith(PNG)
    with (folder / names[0]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {
            "arm": "POST, wait: none",
            "n": "3",
            "min_ms": "1.000",
            "p50_ms": "2.000",
            "p99_ms": "4.000",
            "max_ms": "4.000",
        },
        {
            "arm": "slow",
            "n": "2",
            "min_ms": "3000000.000",
            "p50_ms": "3000000.000",
            "p99_ms": "3000000.000",
            "max_ms": "3000000.000",
        },
    ]


def test_nothing_to_draw_makes_no_folder(tmp_path: Path):
    draw([BARE], tmp_path / "pictures")
    assert list(tmp_path.iterdir()) == []


def test_the_page_shows_the_pictures_that_there_are():
    text = page([], [SECTION, BARE], "benchmarks")
    assert text.count("![") == 1
    assert "](benchmarks/alter-1-000-entities.png)" in text
    assert "](benchmarks/alter-1-000-entities.csv)" in text
    assert "![" not in page([], [SECTION, BARE])


@pytest.mark.parametrize(
    ("options", "plan", "call"),
    [
        (["--quick"], QUICK, "`python scripts/bench.py --quick`"),
        (["--only", "describe-all", "--describe-all", "7"], FULL, "describe-all 7`"),
    ],
)
def test_a_partial_run_is_printed_with_the_command_that_made_it(
    options: list[str],
    plan: Plan,
    call: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    plans: list[Plan] = []

    def run(chosen: Plan, *_: object) -> tuple[list[tuple[str, str]], list[Section]]:
        plans.append(chosen)
        return [("Machine", "small")], [SECTION]

    monkeypatch.setattr(command, "run", run)
    assert command.main(options) == 0
    printed = capsys.readouterr().out
    assert "| **Machine** | small |" in printed
    assert call in printed
    assert plans[0].single_alters == plan.single_alters
    assert plans[0].everything == ((7,) if plan is FULL else QUICK.everything)


def test_a_page_that_is_asked_for_is_written_with_its_pictures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(command, "run", lambda *_: ([("Machine", "small")], [SECTION]))
    page_path = tmp_path / "figures.md"
    assert command.main(["--quick", "--page", str(page_path)]) == 0
    assert "](figures/alter-1-000-entities.png)" in page_path.read_text()
    assert (tmp_path / "figures" / "alter-1-000-entities.png").exists()
