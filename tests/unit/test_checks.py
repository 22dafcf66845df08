"""What `make test` runs beside each other, on programs that take no time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import house
from tests.testkit.patience import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
SLEEP = "import time; time.sleep(600)"
PROGRAMS = {
    "pass": "",
    "fail": "1 / 0",
    "deaf": "import os, pathlib, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    f"pathlib.Path(os.environ['DEAF']).touch(); {SLEEP}",
    "leave": f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}])",
}
RUN = """
import sys
import checks

checks.END_WITHIN_S = {end_within_s}
queues = [
    [checks.Check(name, ["python", "-c", program]) for name, program in queue] for queue in {queues}
]
sys.exit(checks.run(queues))
"""


def start(*queues: list[str], end_within_s: float = 0.5) -> "subprocess.Popen[str]":
    named = [[(name, PROGRAMS[name]) for name in queue] for queue in queues]
    return subprocess.Popen(
        [sys.executable, "-c", RUN.format(queues=named, end_within_s=end_within_s)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
        stdout=subprocess.PIPE,
        text=True,
    )


def results(*queues: list[str]) -> tuple[int, list[str]]:
    """Run the programs and return the exit code and the last lines, without the durations."""
    with start(*queues) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    lines = output.rstrip("\n").rpartition("\n\n")[2].splitlines()
    return process.returncode, [line.partition(" in ")[0] for line in lines]


def test_everything_passes():
    assert results(["pass", "pass"], ["pass"]) == (0, ["== pass passed"] * 3)


def test_what_fails_is_named_whatever_passes_after_it():
    lines = ["== fail FAILED", "== pass passed", "== pass passed", "Failed: fail."]
    assert results(["fail", "pass"], ["pass"]) == (1, lines)


def test_the_output_of_what_fails_is_printed():
    with start(["fail"]) as process:
        assert "ZeroDivisionError" in process.communicate(timeout=DEADLINE_S)[0]


def test_a_process_that_a_check_leaves_is_a_failure_and_is_killed():
    code, lines = results(["leave"])
    assert code == 1
    assert lines[-1].startswith("== Left running, and killed: ")
    assert lines[-1].endswith(SLEEP)


def test_an_interrupt_ends_every_check_even_one_that_does_not_heed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEAF", str(tmp_path / "deaf"))
    with start(["deaf", "fail"], ["pass"], end_within_s=10 * DEADLINE_S) as process:
        wait_until((tmp_path / "deaf").exists)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert output.splitlines()[-1] == "Interrupted: everything ends."


TABLE = {
    "words": ["room", "story", "stories"],
    "contract": ["OldRoom"],
    "small": {"app/b.py": "why"},
}
AREA = {"name": "app", "paths": ["app"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    for name, text in {
        "__init__.py": '"""An app."""\n',
        "a.py": "import app.b\nfrom app import b\n\n\nclass RoomKey:\n    OldRoom = 1\n"
        + "x = 1\n" * 60,
        "b.py": "def call(stories, somewhere):\n    self.next_one = broom = 1\n",
        "c.py": "from app.a import x\n",
    }.items():
        (tmp_path / "app" / name).write_text(text)
    return tmp_path


def test_an_area_is_counted(root: Path):
    assert house.measure(root, AREA, TABLE) == house.Area("app", 70, 4, 2, 1, 3)


def test_words_of_a_document_are_counted_outside_code(root: Path):
    (root / "a.md").write_text("No room, `room`, [rooms](room.md).\n```\nroom\n```\nStories.\n")
    assert house.unwanted_words(root / "a.md", TABLE["words"]) == ["room", "rooms", "stories"]


def test_a_limit_that_is_exceeded_is_a_violation(root: Path):
    areas = [house.measure(root, AREA, TABLE)]
    reached = {"lines": 70, "files": 4, "median": 2, "small": 1, "words": 3}
    assert list(house.violations_of(areas, [{**AREA, **reached}])) == []
    assert list(house.violations_of(areas, [{**AREA, "target_lines": 1}])) == []
    assert list(house.violations_of(areas, [{**AREA, "lines": 69, "median": 3, "words": 2}])) == [
        "app: lines is 70, the limit is 69.",
        "app: median is 2, the limit is 3.",
        "app: words is 3, the limit is 2.",
    ]


def test_a_reason_without_its_small_file_is_a_violation(root: Path):
    assert list(house.dead_reasons(root, {"app/b.py": "why"})) == []
    assert list(house.dead_reasons(root, {"app/a.py": "why"})) == [
        "app/a.py is no small file any more: drop its reason."
    ]


def test_a_circle_of_imports_is_found(root: Path):
    assert house.find_circle(root, []) == []
    (root / "app" / "b.py").write_text("def late():\n    import app.c\n")
    assert set(house.find_circle(root, [])) == {"app.a", "app.b", "app.c"}
    assert house.find_circle(root, ["app.c"]) == []


def test_the_figures_are_printed_beside_limit_and_target(root: Path):
    area = {**AREA, "lines": 80, "target_lines": 60}
    first, second = house.render([house.measure(root, area, TABLE)], [area]).splitlines()
    assert first.split() == ["now/limit/target", "lines", "files", "median", "small", "words"]
    assert second.split()[:3] == ["app", "70/80/60", "4//"]
