"""What `make` does when it is interrupted: it waits for us without telling us."""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

_BLOCKED = re.compile(r"^SigBlk:\s*([0-9a-f]+)$", re.MULTILINE)
_INTERRUPT = 1 << (signal.SIGINT - 1)


class ParentMake:
    """Watches a `make` that started us, so that stopping it stops us.

    A Ctrl-C reaches us as well as make. A SIGINT for make alone leaves it in its signal handler,
    where SIGINT is blocked, until we end; a make that is killed leaves us behind.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Look whether make started us: then `MAKELEVEL` is set."""
        self._pid = os.getppid() if "MAKELEVEL" in environ else None
        # Some parents have SIGINT blocked all the time, which tells us nothing.
        self._took_interrupts = self._pid is not None and not _blocks_interrupts(self._pid)
        self._blocked_before = False

    def wants_us_to_stop(self) -> bool:
        """Tell whether make was interrupted or has gone; never without make.

        An interrupt shows at two looks in a row: whoever starts a process has signals blocked for
        that moment.
        """
        if self._pid is None:
            return False
        if os.getppid() != self._pid:
            return True
        blocked = _blocks_interrupts(self._pid)
        self._took_interrupts |= not blocked
        stays_blocked, self._blocked_before = blocked and self._blocked_before, blocked
        return stays_blocked and self._took_interrupts


def _blocks_interrupts(pid: int) -> bool:
    try:
        found = _BLOCKED.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return False
    return found is not None and bool(int(found.group(1), 16) & _INTERRUPT)
