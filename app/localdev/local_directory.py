"""The folder of the local services: who uses it, what it remembers, and how it is removed."""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class LocalDevError(Exception):
    """Says what stops the local servers, and what to do; raised by all that starts them."""


def read_state(path: Path) -> dict[str, Any]:
    """Return what was written, or nothing where nothing was."""
    if not path.exists():
        return {}
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state, readable by its owner alone, all or nothing."""
    write_private(path, json.dumps(state, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, all or nothing."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


DEFAULT = ".local"

_LOCK = "dev.lock"


def local_directory(environ: Mapping[str, str]) -> Path:
    """Return `QUOTAS_LOCAL_DIR`, or `.local` in the current directory."""
    return Path(environ.get("QUOTAS_LOCAL_DIR") or DEFAULT).absolute()


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep the directory to ourselves."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _LOCK).open("a+")
    except OSError as error:
        message = f"QUOTAS_LOCAL_DIR: {directory} cannot be used: {error.strerror}."
        raise LocalDevError(message) from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise LocalDevError(
                f"Another `make run` (process {lock.read().strip()}) uses {directory}: "
                "stop it first, or set QUOTAS_LOCAL_DIR to another directory."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def forget(directory: Path) -> None:
    """Remove the directory with all its data.

    Raises:
        LocalDevError: it is in use, or is not one of ours.
    """
    if not directory.exists():
        return
    if not (directory / _LOCK).exists():
        raise LocalDevError(f"{directory} was not made by `make run`: nothing was removed.")
    with held(directory):
        shutil.rmtree(directory)


if __name__ == "__main__":
    try:
        forget(local_directory(os.environ))
    except LocalDevError as error:
        sys.exit(str(error))
