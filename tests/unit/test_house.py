"""The figures of scripts/house.py, on a small house, and the limits of the real one."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

TABLE = {"words": ["room", "story", "stories"], "small": {"app/b.py": "why"}}
AREA = {"name": "app", "paths": ["app"]}


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import house  # noqa: PLC0415 - a script, not a module of the project

    return house


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    for name, text in {
        "__init__.py": '"""An app."""\n',
        "a.py": "import app.b\nfrom app import b\n\n\nclass RoomKey:\n    pass\n" + "x = 1\n" * 60,
        "b.py": "def call(stories, somewhere):\n    self.next_one = broom = 1\n",
        "c.py": "from app.a import x\n",
    }.items():
        (tmp_path / "app" / name).write_text(text)
    return tmp_path


def test_an_area_is_counted(house: Any, root: Path):
    assert house.measure(root, AREA, TABLE) == house.Area("app", 70, 4, 2, 1, 3)


def test_words_of_a_document_are_counted_outside_code(house: Any, root: Path):
    (root / "a.md").write_text("No room, `room`, [rooms](room.md).\n```\nroom\n```\nStories.\n")
    assert house.unwanted_words(root / "a.md", TABLE["words"]) == ["room", "rooms", "stories"]


def test_a_limit_that_is_exceeded_is_a_violation(house: Any, root: Path):
    areas = [house.measure(root, AREA, TABLE)]
    reached = {"lines": 70, "files": 4, "median": 2, "small": 1, "words": 3}
    assert list(house.violations_of(areas, [{**AREA, **reached}])) == []
    assert list(house.violations_of(areas, [{**AREA, "target_lines": 1}])) == []
    assert list(house.violations_of(areas, [{**AREA, "lines": 69, "median": 3, "words": 2}])) == [
        "app: lines is 70, the limit is 69.",
        "app: median is 2, the limit is 3.",
        "app: words is 3, the limit is 2.",
    ]


def test_a_reason_without_its_small_file_is_a_violation(house: Any, root: Path):
    assert list(house.dead_reasons(root, {"app/b.py": "why"})) == []
    assert list(house.dead_reasons(root, {"app/a.py": "why"})) == [
        "app/a.py is no small file any more: drop its reason."
    ]


def test_a_circle_of_imports_is_found(house: Any, root: Path):
    assert house.find_circle(root, []) == []
    (root / "app" / "b.py").write_text("def late():\n    import app.c\n")
    assert set(house.find_circle(root, [])) == {"app.a", "app.b", "app.c"}
    assert house.find_circle(root, ["app.c"]) == []


def test_the_figures_are_printed_beside_limit_and_target(house: Any, root: Path):
    area = {**AREA, "lines": 80, "target_lines": 60}
    first, second = house.render([house.measure(root, area, TABLE)], [area]).splitlines()
    assert first.split() == ["now/limit/target", "lines", "files", "median", "small", "words"]
    assert second.split()[:3] == ["app", "70/80/60", "4//"]
