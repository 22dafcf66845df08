"""What goes on, for who waits."""

import sys
import time
from dataclasses import dataclass, field


@dataclass
class Progress:
    """Prints lines with the seconds since the start on standard error."""

    begun: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        """Print a line."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {line}", file=sys.stderr, flush=True)
