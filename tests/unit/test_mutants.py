"""The defects of scripts/mutants.toml still apply, and the script tells which are found."""

from pathlib import Path

import pytest

from scripts import mutants
from scripts.mutants import Mutant

ROOT = Path(__file__).resolve().parents[2]

SOURCE = "def double(number):\n    # 2 * number\n    return 2 * number\n"
TEST = "from sums import double\n\n\ndef test_doubling():\n    assert double(2) == 4\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(SOURCE)
    (tmp_path / "test_sums.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def test_every_defect_applies():
    every = mutants.read_mutants()
    assert len(every) >= 20
    assert list(mutants.faults_of(every)) == []
    assert {item.file.split("/")[1] for item in every} >= {"domain", "service", "postgres"}


def defect(old: str, new: str, file: str = "sums.py") -> Mutant:
    return Mutant("it", "A promise.", file, old, new, ("test_sums.py",))


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("return 3", "return 2"), "its text occurs 0 times in sums.py"),
        (("2 *", "3 *"), "its text occurs 2 times in sums.py"),
        (("return 2", "return 2"), "the text and its replacement are the same"),
        (("return 2 *", "return 2 * ("), "'(' was never closed (sums.py, line 3)"),
        (("return 2", "return 3", "none.py"), "none.py does not exist"),
    ],
)
def test_a_defect_that_cannot_be_put_in_is_a_fault(
    copy: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], fault: str
):
    monkeypatch.setattr(mutants, "ROOT", copy)
    mutant = defect(*words)
    assert list(mutants.faults_of([mutant])) == [f"it: {fault}"]
    assert "it: the name is used twice" in list(mutants.faults_of([mutant, mutant]))


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("return 2", "return 3"), "found by test_sums.py::test_doubling"),
        (("# 2", "# 3"), "NOT FOUND ("),
        (("def double", "def treble"), "NOT FOUND: pytest ended with 2"),
    ],
)
def test_a_defect_is_found_by_a_test_that_fails_and_by_nothing_else(
    copy: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    printed: str,
):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    found = mutants.is_found(defect(*words), copy)
    assert found == printed.startswith("found")
    assert capsys.readouterr().out.startswith(f"it … {printed}")
    assert (copy / "sums.py").read_text() == SOURCE
