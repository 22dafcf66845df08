"""What `make install` does on machines with good, old and broken Pythons."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pip
import pytest

from scripts import install

ROOT = Path(__file__).resolve().parents[2]
PREFERRED = (ROOT / ".python-version").read_text().strip()

BROKEN_SHIM = "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n"
PRETENDER = """#!{python}
import os, pathlib, shutil, sys
sys.version_info = {version} + ("final", 0)
sys._base_executable = {base!r}
sys.prefix = {prefix!r}
for name in {missing}:
    sys.modules[name] = None
if sys.argv[1] == "-c":
    exec(sys.argv[2])
elif sys.argv[1:3] == ["-m", "venv"]:
    pathlib.Path(sys.argv[4], "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, pathlib.Path(sys.argv[4], "bin", "python"))
else:
    sys.exit("ERROR: a pretender installs nothing")
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH; the Python of this test is too old to count."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(pretend(folder / "python", (3, 10, 1))))
    return folder


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def pretend(path: Path, version: tuple[int, ...], *missing: str) -> Path:
    fake = {"version": version, "base": str(path), "prefix": str(path.parent), "missing": missing}
    return program(path, PRETENDER.format(python=REAL_PYTHON, **fake))


REAL_PYTHON = sys.executable


def test_the_python_that_everything_is_tested_with_is_taken_and_without_it_the_newest_that_works(
    programs: Path, capsys: pytest.CaptureFixture[str]
):
    pretend(programs / "python3.12", (3, 12, 1))
    newest = pretend(programs / "python3.13", (3, 13, 0))
    pretend(programs / "python3.14", (3, 14, 0), "ensurepip")
    assert [each.minor_version for each in install.good_pythons()] == ["3.13", "3.12"]
    assert install.choose_python("").program == str(newest)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"Python {PREFERRED}, with which everything is tested, was not found" in line
    assert line.endswith(f"this is Python 3.13: {newest}.")
    preferred = tuple(map(int, PREFERRED.split(".")))
    wanted = pretend(programs / f"python{PREFERRED}", (*preferred, 9))
    chosen = install.choose_python("")
    assert (chosen.program, chosen.minor_version) == (str(wanted), PREFERRED)
    assert capsys.readouterr().err == ""


def test_a_python_of_pyenv_is_taken_where_there_is_no_other_of_its_version(
    programs: Path, monkeypatch: pytest.MonkeyPatch
):
    """A shim puts its version in front of the PATH; both are slower than what is optimized.

    Where the shim does not work, the version behind it is found all the same.
    """
    name = f"python{PREFERRED}"
    preferred = tuple(map(int, PREFERRED.split(".")))
    version = programs / "versions" / f"{PREFERRED}.9" / "bin"
    of_pyenv = pretend(version / name, (*preferred, 9))
    shim = program(programs / "shims" / name, f'#!/bin/sh\nexec {of_pyenv} "$@"\n')
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (version, shim.parent, programs))))
    assert install.choose_python("").program == str(of_pyenv)
    program(shim, BROKEN_SHIM)
    monkeypatch.setenv("PATH", str(shim.parent))
    assert install.choose_python(name).program == str(of_pyenv)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (version, shim.parent, programs))))
    of_the_system = pretend(programs / name, (*preferred, 2))
    assert install.choose_python("").program == str(of_the_system)


def test_when_nothing_works_the_error_lists_what_was_tried_and_says_what_to_do(programs: Path):
    program(programs / "python3.13", BROKEN_SHIM)
    program(programs / "python3.12", "#!/nowhere/at/all\n")
    pretend(programs / "python3.11", (3, 11, 2), "venv", "ensurepip")
    with pytest.raises(SystemExit) as ended:
        install.choose_python("")
    first, *tried, to_do = str(ended.value.code).splitlines()
    assert first == "No Python from 3.11 on can be used. Tried:"
    assert sorted(tried) == [
        f"  {programs / 'python'} is Python 3.10.1",
        f"  {programs / 'python3.11'} lacks the module venv and ensurepip",
        f"  {programs / 'python3.12'} does not run: No such file or directory",
        f"  {programs / 'python3.13'} does not run: pyenv: python3.13: command not found",
    ]
    assert "apt install python3-venv" in to_do
    assert "make install PYTHON=" in to_do


@pytest.mark.parametrize("asked", ["python3.10", "python3.9", "/nowhere/python3"])
def test_another_python_than_the_asked_one_is_never_taken(programs: Path, asked: str):
    pretend(programs / "python3.10", (3, 10, 4))
    pretend(programs / "python3.12", (3, 12, 0))
    with pytest.raises(SystemExit, match=rf"{asked} cannot be used\. Tried:\n"):
        install.choose_python(asked)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    for name in (".python-version", "Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def make_install(checkout: Path, *variables: str, **environ: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["make", "install", *variables],
        cwd=checkout,
        env={**os.environ, "MAKEFLAGS": "", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def test_no_network_is_one_sentence_that_says_what_to_do(checkout: Path):
    """With a real environment, which is taken as it is; it borrows pip, for speed."""
    command = [sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"]
    subprocess.run(command, check=True)
    (packages,) = (checkout / ".venv").glob("lib/python3*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": ""}
    code, lines = make_install(checkout, f"PYTHON={sys.executable}", **nowhere)
    assert code != 0
    assert [line.partition(":")[0] for line in lines[:2]] == ["Installing uv ...", "No network"]
    assert lines[1].startswith("No network: uv cannot be fetched")
    assert not any("Traceback" in line for line in lines)


def test_an_environment_of_another_python_than_the_asked_one_is_made_anew(checkout: Path):
    venv_python = checkout / ".venv" / "bin" / "python"
    for version in ((3, 12, 1), (3, 13, 0)):
        asked = pretend(checkout / f"python{version[1]}", version)
        _, lines = make_install(checkout, f"PYTHON={asked}")
        assert f"Making .venv with Python 3.{version[1]} ..." in lines
        assert str(version) in venv_python.read_text()


def test_a_starter_that_does_not_run_is_skipped(checkout: Path):
    folder = checkout / "programs"
    program(folder / "python3", BROKEN_SHIM)
    (folder / "python3.12").symlink_to(sys.executable)
    path = f"{folder}{os.pathsep}{os.defpath}"
    code, lines = make_install(checkout, "PYTHON=/nowhere/python3", PATH=path)
    assert code != 0
    assert "  /nowhere/python3 does not run: No such file or directory" in lines
