"""The directory of `dev`: one user at a time, and it can be forgotten."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from app.localdev.errors import LocalDevError

DEFAULT = ".local"

_LOCK = "dev.lock"


def local_directory(environ: Mapping[str, str]) -> Path:
    """Return `QUOTAS_LOCAL_DIR`, or `.local` in the current directory."""
    return Path(environ.get("QUOTAS_LOCAL_DIR") or DEFAULT).absolute()


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep the directory to ourselves.

    Raises:
        LocalDevError: another process has it, or it cannot be written to.
    """
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
