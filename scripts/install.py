"""Put everything the project needs into `.venv`; do nothing when nothing changed.

`make install` runs it with any Python 3; where that one is too old it goes on with a newer one from
the PATH. All packages are locked with hashes: pip brings uv, uv brings the rest.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

OLDEST = (3, 11)
NEWER_PYTHONS = ["python3." + str(minor) for minor in range(14, OLDEST[1] - 1, -1)]


def _go_on_with_a_newer_python() -> None:
    for name in NEWER_PYTHONS:
        program = shutil.which(name)
        if program is not None:
            os.execv(program, [program, *sys.argv])  # noqa: S606 - this very script again
    sys.exit(
        f"Python 3.11 or newer is needed and this is {sys.version.split()[0]}: install one, "
        "or name it as in `make install PYTHON=/path/to/python3`."
    )


if sys.version_info < OLDEST:
    _go_on_with_a_newer_python()

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
LOG = VENV / "install.log"
BOOTSTRAP = ROOT / "requirements" / "bootstrap.txt"
EVERYTHING = ROOT / "requirements" / "dev.txt"
INPUTS = [BOOTSTRAP, EVERYTHING, ROOT / "pyproject.toml", Path(__file__).resolve()]

NETWORK_WORDS = (
    "connection",
    "dns error",
    "name resolution",
    "network",
    "request failed after",
    "retrying (retry",
    "timed out",
)


def main() -> None:
    """Install what is missing or changed."""
    wanted = _fingerprint()
    if _installed() == wanted:
        return
    # One at a time: `make run` and `make test` may both have called.
    with BOOTSTRAP.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed() != wanted:
            _install(wanted)


def _fingerprint() -> dict[str, str]:
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.read_bytes())
    # The programs in .venv/bin name their place: a checkout that was moved starts again.
    return {"root": str(ROOT), "inputs": digest.hexdigest()}


def _installed() -> dict[str, str]:
    if not (STAMP.exists() and PYTHON.exists()):
        return {}
    stamp: dict[str, str] = json.loads(STAMP.read_text())
    return stamp


def _install(wanted: dict[str, str]) -> None:
    begun = time.monotonic()
    before = _installed()
    STAMP.unlink(missing_ok=True)
    if not _usable() or before.get("root", str(ROOT)) != str(ROOT):
        _make_venv()
    LOG.write_text("")
    uv = [str(VENV / "bin" / "uv"), "pip"]
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--retries", "2"]
    _step("uv", [*pip, "--require-hashes", "--requirement", str(BOOTSTRAP)])
    _step("the packages", [*uv, "sync", "--require-hashes", str(EVERYTHING)])
    editable = ["install", "--no-deps", "--no-build-isolation", "--offline", "--editable", "."]
    _step("the project", [*uv, *editable])
    _fetch_jars()
    part = STAMP.with_suffix(".part")
    part.write_text(json.dumps(wanted))
    part.replace(STAMP)
    _say(f"Installed in {time.monotonic() - begun:.0f} s.")


def _usable() -> bool:
    """Tell whether .venv has a Python that runs, new enough, with pip, and from this place."""
    program = "import pip, sys; print(sys.version_info >= (3, 11), sys.prefix)"
    if not PYTHON.exists():
        return False
    answer = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == f"True {VENV}"


def _make_venv() -> None:
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        sys.exit(
            "This Python lacks the module venv or ensurepip: install it (on Debian and Ubuntu "
            "`apt install python3-venv`) and run `make install` again."
        )
    _say("Making .venv ...")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        reason = (made.stdout + made.stderr).strip().splitlines()[-1:]
        sys.exit(f"{VENV} cannot be made: {' '.join(reason) or 'python -m venv failed'}.")


def _step(what: str, command: list[str]) -> None:
    _say(f"Installing {what} ...")
    environ = {**os.environ, "VIRTUAL_ENV": str(VENV), "UV_NO_PROGRESS": "1"}
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
    with LOG.open("a") as log:
        log.write(done.stdout)
    if done.returncode != 0:
        sys.exit(_explained(what, done.stdout))


def _explained(what: str, output: str) -> str:
    if any(word in output.lower() for word in NETWORK_WORDS):
        return (
            f"No network: {what} cannot be fetched from the package index; connect this machine "
            "to the internet, or name a mirror in UV_DEFAULT_INDEX and PIP_INDEX_URL, and run "
            f"`make install` again (details: {LOG})."
        )
    return f"Installing {what} failed; {LOG} says why."


def _fetch_jars() -> None:
    program = (
        "import sys; from app.localdev.errors import LocalDevError;"
        "from app.localdev.jars import class_path\n"
        "try: class_path(tools=True)\n"
        "except LocalDevError as error: sys.exit(str(error))"
    )
    # Without them the service still works with a broker elsewhere: `make run` asks again.
    subprocess.run([PYTHON, "-c", program], cwd=ROOT, check=False)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted: run `make install` again.")
