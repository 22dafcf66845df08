"""Connections need file descriptors, of which a process may have so many and no more."""

import logging
import sys
from typing import Final

if sys.platform != "win32":
    import resource

OTHER_FILES: Final = 100
"""What the process needs besides: brokers, Postgres, files."""

logger = logging.getLogger(__name__)


def room_for_connections(wanted: int, besides: int = 0) -> int:
    """Return how many connections fit, after asking the system for as many files as it grants.

    Args:
        wanted: So many at most.
        besides: Files that are needed beyond these and ``OTHER_FILES``.
    """
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    other = OTHER_FILES + besides
    granted, needed = _number(soft), wanted + other
    if granted < needed:
        granted = min(needed, _number(hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    room = max(1, min(wanted, granted - other))
    if room < wanted:
        logger.warning("%d files may be open, so %d connections fit", granted, room)
    return room


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
