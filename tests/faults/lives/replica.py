"""One replica of the service, to be killed, frozen and started again."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from app.localdev.ports import free_ports
from tests.faults.lives.nursery import Born, Nursery
from tests.testkit.service import write_tokens

DEADLINE_S: Final = 120.0
"""A start takes a fraction of a second where nothing else runs."""
CALLER: Final = "root"
"""A super user, and its token."""

_POLL_S: Final = 0.02


class Replica:
    """Keeps its port and its log from one life to the next; ``settings`` may change between."""

    def __init__(
        self, nursery: Nursery, folder: Path, addresses: Mapping[str, str], settings: dict[str, str]
    ) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "service.log"
        self.settings = settings
        self._nursery = nursery
        self._process: Born | None = None
        self._environ = {
            "QUOTAS_PORT": str(port),
            "QUOTAS_MODE": "development",
            "QUOTAS_TOKENS_FILE": str(write_tokens(folder, (CALLER,))),
            "QUOTAS_SUPER_USERS": f"User:{CALLER}",
            **addresses,
        }

    def start(self) -> None:
        """Start it, and return when it answers."""
        settings = {f"QUOTAS_{name.upper()}": value for name, value in self.settings.items()}
        self._process = self._nursery.bear({**self._environ, **settings}, self.log_path)
        deadline = time.monotonic() + DEADLINE_S
        while not self._answers():
            in_time = not self._process.has_ended() and time.monotonic() < deadline
            assert in_time, self.log_path.read_text()
            time.sleep(_POLL_S)

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

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self._process is not None:
            self._process.send(number)

    def wait_until_ended(self) -> None:
        """Wait until it has ended."""
        assert self._process is None or self._process.has_ended(DEADLINE_S)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/livez").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
