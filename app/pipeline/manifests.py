"""What a run reads, as a list of files: other files make it another run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from app.pipeline.errors import UsageError
from app.pipeline.folders import local_folder

_NOT_READ: Final = ("_", ".")
"""How the names of files and folders begin that hold no rows."""

FileMark = tuple[str, int, int]
"""A path below what is read, its size in bytes, and when it was changed, in ns since 1970."""


def manifest_of(uri: str) -> list[FileMark]:
    """Return every file that a folder or a file of ``--input`` holds, in the order of their paths.

    Nothing is read of them. What is no folder, or is not there, has none.
    """
    try:
        place = local_folder(uri)
    except UsageError:
        return []
    files: Iterable[Path] = [place] if place.is_file() else place.rglob("*")
    marks = []
    for file in files:
        parts = file.relative_to(place).parts
        if any(part.startswith(_NOT_READ) for part in parts) or not file.is_file():
            continue
        state = file.stat()
        marks.append(("/".join(parts), state.st_size, state.st_mtime_ns))
    return sorted(marks)
