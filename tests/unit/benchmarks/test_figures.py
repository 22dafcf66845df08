"""The figures of a run: what is computed from them, and how they are rendered and drawn."""

import csv
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.measures import (
    Arm,
    Goal,
    Measure,
    Section,
    interleaved,
    latency_rows,
    percentile,
    show,
)
from benchmarks.report import draw, page
from benchmarks.run import FULL, QUICK, Plan


def recorder(name: str, calls: list[str], every: int = 1) -> Arm:
    async def measure() -> float:
        calls.append(name)
        return 1234.5

    return Arm(name, measure, every)


def test_a_percentile_is_the_nearest_rank():
    figures = [float(number) for number in range(1, 201)]
    assert percentile(figures, 0.99) == 198
    assert percentile(figures[:100], 0.99) == 99
    assert percentile(figures[:20], 0.99) == 20
    assert percentile([7.0], 0.99) == 7


def test_figures_of_the_same_round_are_compared():
    ours, theirs = Measure([3.0, 20.0, 107.0, None]), Measure([1.0, 10.0, 100.0, 0.0])
    assert ours.ratio_to(theirs) == 2
    assert ours.excess_over(theirs) == 7
    assert theirs.excess_over(ours) == -7


def test_a_round_that_was_sat_out_does_not_count():
    measure = Measure([5.0, None, 1.0])
    assert (measure.n, measure.minimum, measure.median, measure.maximum) == (2, 1, 3, 5)
    assert measure.times(10).by_round == [50, None, 10]


async def test_arms_take_turns_and_what_they_have_measured_themselves_counts():
    calls: list[str] = []
    arms = [recorder("a", calls), recorder("b", calls), recorder("c", calls, every=2)]
    measures = await interleaved(arms, rounds=3, warm_up=0)
    assert "".join(calls) == "abc" + "ba" + "cab"
    assert [measures[arm.name].n for arm in arms] == [3, 3, 2]
    assert measures["c"].figures == [1234.5, 1234.5]


async def test_warming_up_leaves_no_figures():
    calls: list[str] = []
    measures = await interleaved([recorder("a", calls)], rounds=2, warm_up=3)
    assert len(calls) == 5
    assert measures["a"].n == 2


def test_figures_have_three_digits():
    figures = [show(item) for item in (0.127, 9.994, 12.34, 123.4, 2_825_421.0)]
    assert figures == ["0.13", "9.99", "12.3", "123", "2,825,421"]


def test_the_page_says_of_each_goal_whether_it_is_met():
    goals = [
        Goal("a / b", 2.0, 1.9),
        Goal("c / d", 2.0, 2.1),
        Goal("e / f", 0.5, 0.6, at_most=False),
        Goal("g / h", 0.5, 0.4, at_most=False),
    ]
    rows = latency_rows({"a": Measure([1.0, 2.0])}, "a")
    columns = ("arm", "n", "min ms", "p50 ms", "p99 ms", "x a")
    section = Section("Something", "A note.", columns, rows, goals)
    text = page([("Machine", "small")], [section])
    assert "| a / b | at most 2 | 1.90 | met |" in text
    assert "| c / d | at most 2 | 2.10 | **missed** |" in text
    assert "| e / f | at least 0.5 | 0.60 | met |" in text
    assert "| g / h | at least 0.5 | 0.40 | **missed** |" in text
    assert "| **Machine** | small |" in text
    assert "| a | 2 | 1.00 | 1.50 | 2.00 | 1.00 |" in text


MEASURES = {
    "`POST`, `wait: none`": Measure([1.0, 2.0, 4.0]),
    "**slow**": Measure([3_000_000.0, None, 3_000_000.0]),
}
SECTION = Section("Alter 1,000 entities", "A note.", ("arm",), [["a"]], measures=MEASURES)
BARE = Section("Resolve", "A note.", ("route",), [["a"]])


def test_a_picture_has_its_figures_beside_it(tmp_path: Path):
    folder = tmp_path / "pictures"
    draw([SECTION, BARE], folder)
    names = ["alter-1-000-entities.csv", "alter-1-000-entities.png"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert (folder / names[1]).read_bytes().startswith(b"\x89PNG\r\n")
    with (folder / names[0]).open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["arm", "n", "min_ms", "p50_ms", "p99_ms", "max_ms"],
            ["POST, wait: none", "3", "1.000", "2.000", "4.000", "4.000"],
            ["slow", "2", *["3000000.000"] * 4],
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
        (["--quick"], QUICK, "`python -m benchmarks --quick`"),
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


def test_an_unknown_table_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as refused:
        command.main(["--only", "breakfast"])
    assert refused.value.code == 2
    assert "describe" in capsys.readouterr().err
