"""What the workers of one service have in common, made by their parent before the first fork."""

import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.http.workers.board import Board

_FOLDERS: Final = (None, "/dev/shm")  # noqa: S108 - mkdtemp makes a private one in there
_LONGEST_PATH_BYTES: Final = 100
"""A Unix socket's path has about so many at most. Source: unix(7), ``sun_path``."""


@dataclass(slots=True)
class Team:
    """The workers, and in each of them which one it is.

    Attributes:
        size: How many there are.
        folder: For their sockets and files; of this user alone.
        board: Memory that all of them see.
        secret: Signs page tokens, so that each worker reads the others'.
        mine: The number of this worker, from 1 on; 0 in the parent.
    """

    size: int
    folder: Path
    board: Board
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    mine: int = 0

    def numbers(self) -> range:
        """Return the numbers of all workers."""
        return range(1, self.size + 1)

    def others(self) -> list[int]:
        """Return the numbers of the other workers."""
        return [number for number in self.numbers() if number != self.mine]

    def socket_of(self, number: int) -> Path:
        """Return where a worker listens for the others."""
        return self.folder / f"{number}.sock"

    def metrics_of(self, number: int) -> Path:
        """Return the file that keeps what a worker has counted."""
        return self.folder / f"{number}.json"

    def snapshots_of_mine(self) -> str:
        """Return what the ids of this worker's snapshots begin with; see ``HandOn``."""
        return f"{self.mine}."

    def join(self, number: int) -> None:
        """Become a worker."""
        self.mine = number
        self.board.mine = number
        with suppress(FileNotFoundError):
            self.socket_of(number).unlink()

    def disband(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def new_team(size: int) -> Team:
    """Return a team with a private folder.

    Raises:
        OSError: There is no directory to write to, or the paths there are too long.
    """
    failure = OSError("the paths of temporary files are too long for sockets")
    for parent in _FOLDERS:
        try:
            folder = Path(tempfile.mkdtemp(prefix="quotas-", dir=parent))
        except OSError as error:
            failure = error
            continue
        if len(os.fsencode(folder / f"{size}.sock")) <= _LONGEST_PATH_BYTES:
            return Team(size, folder, Board(size))
        folder.rmdir()
    raise failure
