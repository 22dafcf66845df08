"""Put everything the project needs into a virtual environment; do nothing when nothing changed.

`make install` runs it with any Python from 3.8 on. The environment gets the Python that
`.python-version` names, the newest other one where that is missing, or the one that was asked for.
All packages are locked with hashes: pip brings uv, uv brings the rest.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, NamedTuple  # noqa: UP035 - Python 3.8 runs this, too

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PREFERRED = ROOT / ".python-version"
BOOTSTRAP = ROOT / "requirements" / "bootstrap.txt"
EVERYTHING = ROOT / "requirements" / "dev.txt"
NPM_PACKAGES = ROOT / "requirements" / "npm.toml"
INPUTS = [
    PREFERRED,
    BOOTSTRAP,
    EVERYTHING,
    NPM_PACKAGES,
    ROOT / "pyproject.toml",
    Path(__file__).resolve(),
]

OLDEST = (3, 11)
PROBE_DEADLINE_S = 30
PROBE = """
import json, sys
missing = []
for name in ("venv", "ensurepip"):
    try:
        __import__(name)
    except ImportError:
        missing.append(name)
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([list(sys.version_info[:3]), base, sys.prefix, missing]))
"""

NETWORK_WORDS = (
    "connection",
    "dns error",
    "name resolution",
    "network",
    "request failed after",
    "retrying (retry",
    "timed out",
)


class Python(NamedTuple):
    """A program that was asked what it is.

    Attributes:
        program: as found, which may be a shim or belong to a virtual environment.
        version: three numbers; none where it does not run.
        base: the interpreter behind it, without links.
        prefix: where its packages are installed.
        fault: why it is of no use here; empty for a good interpreter.
    """

    program: str
    version: tuple[int, ...] = ()
    base: str = ""
    prefix: str = ""
    fault: str = ""

    @property
    def minor_version(self) -> str:
        """As in `.python-version`: `3.11`."""
        return ".".join(map(str, self.version[:2]))


def main() -> None:
    """Install what is missing or changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="?", default="", help="a name or a path, as python3.13")
    parser.add_argument("--venv", type=Path, default=VENV, help="default: .venv")
    arguments = parser.parse_args()
    venv = Path(os.path.abspath(arguments.venv))  # noqa: PTH100 - a link stays a link
    if _is_installed(venv, arguments.python):
        return
    # One at a time: `make run` and `make test` may both have called.
    with BOOTSTRAP.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_installed(venv, arguments.python):
            _install(venv, arguments.python or _stamp(venv).get("asked", ""))


def choose_python(asked: str) -> Python:
    """Return the interpreter that was asked for, or the preferred, or the newest good one.

    Args:
        asked: a name to look for, or a path; empty for the default.
    """
    preferred = PREFERRED.read_text().strip()
    tried = []
    for program in _programs(asked, f"python{preferred}"):
        python = probe(program)
        if not python.fault and (asked or python.minor_version == preferred):
            return python
        tried.append(python)
    good = [python for python in tried if not python.fault]
    if not good:
        sys.exit(_no_python(asked, tried))
    newest = max(good, key=lambda python: python.version)
    _say(
        f"Python {preferred}, with which everything is tested, was not found; "
        f"this is Python {newest.minor_version}: {newest.program}."
    )
    return newest


def good_pythons() -> list[Python]:
    """Return an interpreter of each minor version from 3.11 on that works here, newest first."""
    found = [python for python in map(probe, _programs("", "")) if not python.fault]
    each = {python.version[:2]: python for python in reversed(found)}
    return [each[version] for version in sorted(each, reverse=True)]


def probe(program: str) -> Python:
    """Run a program and find out whether it can make a virtual environment for this project."""
    try:
        done = subprocess.run(
            [program, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_DEADLINE_S,
            check=False,
        )
        version, base, prefix, missing = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Python(program, fault="does not answer")
    except OSError as error:
        return Python(program, fault=f"does not run: {error.strerror}")
    except ValueError:
        reason = done.stderr.strip().splitlines()[:1] or [f"exit code {done.returncode}"]
        return Python(program, fault=f"does not run: {reason[0]}")
    fault = ""
    if tuple(version) < OLDEST:
        fault = f"is Python {'.'.join(map(str, version))}"
    elif missing:
        fault = f"lacks the module {' and '.join(missing)}"
    return Python(program, tuple(version), os.path.realpath(base), prefix, fault)


def _programs(asked: str, first: str) -> Iterator[str]:
    """Yield the interpreters to try, each file once: those named `first` before all others."""
    if os.sep in asked:
        yield asked
        return
    pattern = re.compile(re.escape(asked) if asked else r"python(3(\.\d+)?)?")
    found = [
        program
        for folder in _folders()
        for program in sorted(folder.glob("python*" if not asked else "*"))
        if pattern.fullmatch(program.name) and os.access(program, os.X_OK)
    ]
    if not asked:
        found.append(Path(sys.executable))
    seen = set()
    for program in sorted(found, key=lambda program: program.name != first):
        file = os.path.realpath(program)
        if file not in seen:
            seen.add(file)
            yield str(program)


def _folders() -> Iterator[Path]:
    """Yield the folders of the PATH; those of pyenv, and the versions behind its shims, come last.

    pyenv builds without profile-guided optimization unless it is told to; the interpreters of
    distributions have it, as that of the image does: pyenv's takes up to twice as long.
    """
    path = [Path(name) for name in os.environ.get("PATH", os.defpath).split(os.pathsep) if name]
    for folder in sorted(filter(Path.is_dir, path), key=_is_of_pyenv):
        yield folder
        if folder.name == "shims":
            yield from sorted(folder.parent.glob("versions/*/bin"))


def _is_of_pyenv(folder: Path) -> bool:
    """Return whether it has shims, or a version: a shim puts its version in front of the PATH."""
    return folder.name == "shims" or folder.parent.parent.name == "versions"


def _no_python(asked: str, tried: list[Python]) -> str:
    wanted = f"{asked} cannot be used" if asked else "No Python from 3.11 on can be used"
    nothing = ["  nothing: no program of that name is on the PATH"]
    to_do = (
        f"Install Python {PREFERRED.read_text().strip()} with its modules venv and ensurepip (on "
        "Debian and Ubuntu `apt install python3-venv`), or name another interpreter from 3.11 on: "
        "`make install PYTHON=/path/to/python3`."
    )
    reasons = [f"  {python.program} {python.fault}" for python in tried] or nothing
    return "\n".join([f"{wanted}. Tried:", *reasons, to_do])


def _is_installed(venv: Path, asked: str) -> bool:
    stamp = _stamp(venv)
    return _fingerprint().items() <= stamp.items() and asked in ("", stamp.get("asked"))


def _fingerprint() -> dict[str, str]:
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.read_bytes())
    # The programs in .venv/bin name their folder: a checkout that was moved starts again.
    return {"root": str(ROOT), "inputs": digest.hexdigest()}


def _stamp(venv: Path) -> dict[str, str]:
    """Return what was installed: the fingerprint, and which Python was asked for."""
    path = _stamp_path(venv)
    if not (path.exists() and _python_of(venv).exists()):
        return {}
    stamp: dict[str, str] = json.loads(path.read_text())
    return stamp


def _stamp_path(venv: Path) -> Path:
    return venv / "installed.json"


def _python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def _install(venv: Path, asked: str) -> None:
    begun = time.monotonic()
    python = choose_python(asked)
    stamp_path = _stamp_path(venv)
    moved = _stamp(venv).get("root", str(ROOT)) != str(ROOT)
    if stamp_path.exists():
        stamp_path.unlink()
    if moved or not _is_made_with(python, venv):
        _make_venv(python, venv)
    log = venv / "install.log"
    log.write_text("")
    uv = [str(venv / "bin" / "uv"), "pip"]
    pip = [str(_python_of(venv)), "-m", "pip", "install"]
    options = ["--disable-pip-version-check", "--retries", "2", "--require-hashes"]
    editable = ["install", "--no-deps", "--no-build-isolation", "--offline", "--editable", "."]
    _step(venv, "uv", [*pip, *options, "--requirement", str(BOOTSTRAP)])
    _step(venv, "the packages", [*uv, "sync", "--require-hashes", str(EVERYTHING)])
    _step(venv, "the project", [*uv, *editable])
    _fetch_jars(venv)
    _fetch_browser(venv)
    unfinished = stamp_path.with_suffix(".part")
    unfinished.write_text(json.dumps({**_fingerprint(), "asked": asked}))
    unfinished.replace(stamp_path)
    _say(f"Installed in {time.monotonic() - begun:.0f} s, with Python {python.minor_version}.")


def _is_made_with(python: Python, venv: Path) -> bool:
    """Tell whether a folder is an environment of this interpreter, at this path, with pip."""
    inside = probe(str(_python_of(venv)))
    wanted = (python.base, python.version, str(venv))
    has_pip = any(venv.glob("lib/python3*/site-packages/pip"))
    return has_pip and (inside.base, inside.version, inside.prefix) == wanted


def _make_venv(python: Python, venv: Path) -> None:
    _say(f"Making {venv.name} with Python {python.minor_version} ...")
    command = [python.base, "-m", "venv", "--clear", str(venv)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        reason = (made.stdout + made.stderr).strip().splitlines()[-1:]
        sys.exit(f"{venv} cannot be made: {' '.join(reason) or 'python -m venv failed'}.")


def _step(venv: Path, what: str, command: list[str]) -> None:
    _say(f"Installing {what} ...")
    environ = {**os.environ, "VIRTUAL_ENV": str(venv), "UV_NO_PROGRESS": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    log = venv / "install.log"
    with log.open("a") as file:
        file.write(done.stdout)
    if done.returncode != 0:
        sys.exit(_explained(what, done.stdout, log))


def _explained(what: str, output: str, log: Path) -> str:
    if any(word in output.lower() for word in NETWORK_WORDS):
        return (
            f"No network: {what} cannot be fetched from the package index; connect this machine "
            "to the internet, or name a mirror in UV_DEFAULT_INDEX and PIP_INDEX_URL, and run "
            f"`make install` again (details: {log})."
        )
    return f"Installing {what} failed; {log} says why."


def _fetch_jars(venv: Path) -> None:
    program = (
        "import sys; from app.localdev.local_directory import LocalDevError;"
        "from app.localdev.jars import class_path\n"
        "try: class_path(tools=True)\n"
        "except LocalDevError as error: sys.exit(str(error))"
    )
    # Without them the service still works with a broker elsewhere: `make run` asks again.
    subprocess.run([_python_of(venv), "-c", program], cwd=ROOT, check=False)


def _fetch_browser(venv: Path) -> None:
    # Only tests need it, and fetch it themselves where that fails here.
    script = ROOT / "scripts" / "npm_packages.py"
    subprocess.run([_python_of(venv), script], cwd=ROOT, check=False)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted: run `make install` again.")
