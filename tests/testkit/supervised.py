"""A parent with workers that do one small thing each, to be run as a process of its own.

``python -m tests.testkit.supervised WORKERS BEHAVIOUR FOLDER``. Each worker leaves its process id
in the folder once it serves; what it does then is one of ``BEHAVIOURS``.
"""

import errno
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from app.supervisor.life import Life
from app.supervisor.supervisor import Supervisor, Task

STOP_WITHIN_S = 1.0


def serve(life: Life, folder: Path) -> int:
    """Serve until SIGTERM; note each SIGHUP."""
    life.watch_parent(lambda: os._exit(9), end_within_s=STOP_WITHIN_S)
    signal.signal(signal.SIGHUP, lambda *_: (folder / f"{life.number}.hup").touch())
    mark = folder / f"{life.number}.new"
    mark.write_text(str(os.getpid()))
    mark.rename(folder / f"{life.number}.pid")
    life.serves()
    while True:
        time.sleep(60)


def fail(_life: Life, _folder: Path) -> int:
    """End before it serves."""
    print("this cannot work", file=sys.stderr)
    return 2


def crash(_life: Life, _folder: Path) -> int:
    """Break before it serves."""
    message = "this is a bug"
    raise RuntimeError(message)


def deaf(life: Life, folder: Path) -> int:
    """Serve, and do not stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return serve(life, folder)


def second_fails(life: Life, folder: Path) -> int:
    """Serve as the first worker, fail as any other."""
    return serve(life, folder) if life.number == 1 else fail(life, folder)


def fail_when_repeated(life: Life, folder: Path) -> int:
    """Serve once; whoever follows fails as long as a file is there."""
    if (folder / f"{life.number}.pid").exists() and (folder / "broken").exists():
        (folder / f"{life.number}.failed").touch()
        return 3
    return serve(life, folder)


BEHAVIOURS: Mapping[str, Callable[[Life, Path], int]] = {
    "serve": serve,
    "fail": fail,
    "crash": crash,
    "deaf": deaf,
    "second_fails": second_fails,
    "fail_when_repeated": fail_when_repeated,
}


def make_processes_scarce(folder: Path) -> None:
    """Let no process begin while there is a file ``full``."""
    fork = os.fork

    def fork_if_there_is_room() -> int:
        if (folder / "full").exists():
            (folder / "refused").touch()
            raise BlockingIOError(errno.EAGAIN, "no process is left")
        return fork()

    os.fork = fork_if_there_is_room


def main() -> int:
    """Supervise."""
    number, behaviour, folder = int(sys.argv[1]), BEHAVIOURS[sys.argv[2]], Path(sys.argv[3])
    make_processes_scarce(folder)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    task = Task(
        work=lambda life: behaviour(life, folder),
        ended=lambda worker: (folder / f"{worker}.ended").touch(),
        stopping=(folder / "stopping").touch,
        stop_within_s=STOP_WITHIN_S,
    )
    return Supervisor(number, task).run()


if __name__ == "__main__":
    sys.exit(main())
