"""One replica of the service, to be killed, frozen and started again."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.testkit.service import STARTS_WITHIN_S, RunningService, write_tokens

CALLER: Final = "root"
"""A super user, and its token."""


class Replica(RunningService):
    """Has the same port and the same log after a restart."""

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self.send(signal.SIGKILL)
        self.wait_until_ended()

    def freeze(self) -> None:
        """Let it hang."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def is_frozen(self) -> bool:
        """Tell whether it hangs, by its own doing or ours."""
        status = Path(f"/proc/{self.process.pid}/stat").read_text() if self.process else ""
        return status.rpartition(")")[2].split()[:1] == ["T"]

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.process is not None:
            self.process.send_signal(number)

    def wait_until_ended(self) -> None:
        """Wait until it has ended."""
        if self.process is not None:
            self.process.wait(STARTS_WITHIN_S)


def new_replica(folder: Path, addresses: Mapping[str, str], settings: Mapping[str, str]) -> Replica:
    """Return a replica that is not started; ``settings`` are variables without their prefix."""
    environ = {
        "QUOTAS_PORT": "0",
        "QUOTAS_MODE": "development",
        "QUOTAS_TOKENS_FILE": str(write_tokens(folder, (CALLER,))),
        "QUOTAS_SUPER_USERS": f"User:{CALLER}",
        **addresses,
        **{f"QUOTAS_{name.upper()}": value for name, value in settings.items()},
    }
    return Replica(environ, folder / "service.log")
