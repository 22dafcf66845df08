"""Put defects in by hand, one at a time, and see that the tests find each of them.

The defects are in scripts/mutants.toml: a file, a text that occurs there once, what replaces it,
the promise that it breaks, and the tests that must find it. All of it happens in a copy of the
checkout in a temporary folder. Exit codes: 0 where every defect was found, 1 where one was not, or
where a text does not apply any more, 130 after Ctrl-C.
"""

import argparse
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "mutants.toml"
STOPS_WITHIN_S = 60.0
NOT_FOUND = "NOT FOUND"


@dataclass(frozen=True)
class Mutant:
    """A defect.

    Attributes:
        name: Words with hyphens.
        promise: A sentence that is not true any more with it.
        file: Where the text occurs, once.
        old: The text.
        new: What replaces it.
        tests: Files or folders of tests; at least one of their tests must fail.
    """

    name: str
    promise: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """Return the source with the defect."""
        return source.replace(self.old, self.new)


def main(words: Sequence[str] | None = None) -> int:
    """Return 0 when every chosen defect was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the defects and end")
    parser.add_argument("--check", action="store_true", help="only see that all texts still apply")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names, or the beginning of them")
    arguments = parser.parse_args(words)
    every = read_mutants()
    chosen = [item for item in every if item.name.startswith(tuple(arguments.only or [""]))]
    if not chosen:
        parser.error("no defect has such a name; --list prints them")
    if arguments.list:
        print("\n".join(f"{item.name}: {item.promise} ({item.file})" for item in chosen))
        return 0
    faults = list(faults_of(every))
    print("\n".join(faults) or f"{len(every)} defects apply.", flush=True)
    if faults or arguments.check:
        return 1 if faults else 0
    try:
        return run(chosen)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def read_mutants() -> list[Mutant]:
    """Return the defects in the order of the file."""
    tables = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def faults_of(mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield what is wrong with the list; a text must occur once, and the result be Python."""
    names = [mutant.name for mutant in mutants]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name}: the name is used twice"
    for mutant in mutants:
        for fault in _faults_of_mutant(mutant):
            yield f"{mutant.name}: {fault}"


def _faults_of_mutant(mutant: Mutant) -> Iterator[str]:
    missing = [path for path in (mutant.file, *mutant.tests) if not (ROOT / path).exists()]
    yield from (f"{path} does not exist" for path in missing)
    if mutant.old == mutant.new:
        yield "the text and its replacement are the same"
    elif mutant.file not in missing:
        source = (ROOT / mutant.file).read_text(encoding="utf-8")
        if source.count(mutant.old) != 1:
            yield f"its text occurs {source.count(mutant.old)} times in {mutant.file}"
            return
        try:
            compile(mutant.applied_to(source), mutant.file, "exec")
        except SyntaxError as error:
            yield str(error)


def run(mutants: Sequence[Mutant]) -> int:
    """Run the tests of each defect in a copy; return 0 when all were found."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copied(Path(folder) / "checkout")
        every_test = sorted({path for mutant in mutants for path in mutant.tests})
        unchanged = _run_tests("no defect", every_test, copy, "all tests pass")
        if unchanged.code != 0:
            print(f"{unchanged.printed}\nWhat fails without a defect proves nothing.")
            return 1
        missed = [mutant.name for mutant in mutants if not is_found(mutant, copy)]
    print(f"{len(mutants) - len(missed)} of {len(mutants)} defects were found.")
    return 1 if missed else 0


def copied(folder: Path) -> Path:
    """Copy what git tracks or would track, and link the environment."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def is_found(mutant: Mutant, copy: Path) -> bool:
    """Apply a defect, run its tests, and take it out again."""
    file = copy / mutant.file
    source = file.read_text(encoding="utf-8")
    _write(file, mutant.applied_to(source))
    try:
        return _run_tests(mutant.name, mutant.tests, copy).failed is not None
    finally:
        _write(file, source)


def _write(file: Path, source: str) -> None:
    """Write a module, and forget its compiled form, which may be of the same second and size."""
    file.write_text(source, encoding="utf-8")
    Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Ended:
    """How a run of pytest ended: with 0 where all tests passed, with 1 where one failed."""

    code: int
    printed: str

    @property
    def failed(self) -> str | None:
        found = re.search(r"^FAILED (.+?)(?: - |$)", self.printed, re.MULTILINE)
        return found[1] if found and self.code == 1 else None


def _run_tests(
    name: str, tests: Sequence[str], copy: Path, where_all_pass: str = NOT_FOUND
) -> _Ended:
    """Run tests until one fails, and print a line."""
    print(f"{name} … ", end="", flush=True)
    begun = time.monotonic()
    ended = _pytest(tests, copy)
    verdict = where_all_pass if ended.code == 0 else f"{NOT_FOUND}: pytest ended with {ended.code}"
    if ended.failed:
        verdict = f"found by {ended.failed}"
    print(f"{verdict} ({time.monotonic() - begun:.1f} s)", flush=True)
    return ended


def _pytest(tests: Sequence[str], copy: Path) -> _Ended:
    command = [
        copy / ".venv/bin/pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        *tests,
    ]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate()
    except KeyboardInterrupt:
        _stop(process)
        raise
    return _Ended(process.returncode, printed)


def _stop(process: subprocess.Popen[str]) -> None:
    """Let pytest end its brokers and databases."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


if __name__ == "__main__":
    sys.exit(main())
