"""What a run reads, as a list of files: other files make it another run."""

from app.pipeline.errors import UsageError
from app.pipeline.folders import files_below, places_of

FileMark = tuple[str, int, int]
"""A path below what is read, its size in bytes, and when it was changed, in ns since 1970."""


def manifest_of(uri: str) -> list[FileMark]:
    """Return every file that ``--input`` names, in the order of their paths; nothing is read.

    What is no folder, file or pattern, or is not there, has none.
    """
    try:
        places = places_of(uri)
    except (UsageError, ValueError):
        return []
    marks = []
    for place in places:
        for file in [place] if place.is_file() else files_below(place):
            path = file.relative_to(place.parent if file == place else place)
            state = file.stat()
            marks.append((path.as_posix(), state.st_size, state.st_mtime_ns))
    return sorted(marks)
