import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def install(checkout: Path, *python_options: str, **environ: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *python_options, str(checkout / "scripts" / "install.py")],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_no_network_is_one_sentence_that_says_what_to_do(checkout: Path):
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": ""}
    code, said = install(checkout, **nowhere)
    assert code == 1
    assert said.splitlines()[-1].startswith("No network: uv cannot be fetched")
    assert "Traceback" not in said


def test_a_python_without_venv_is_one_sentence_that_says_what_to_do(checkout: Path):
    (checkout / "scripts" / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'ensurepip' else find(name, *rest)\n"
    )
    code, said = install(checkout, PYTHONPATH=str(checkout / "scripts"))
    assert code == 1
    assert "apt install python3-venv" in said
    assert said.count("\n") == 1


def test_bootstrap_and_everything_lock_the_same_uv():
    def lines_of_uv(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text()
        block = text[text.index("\nuv==") :].split("\n    # via")[0]
        return set(block.split())

    assert lines_of_uv("bootstrap.txt") == lines_of_uv("dev.txt")
