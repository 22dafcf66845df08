"""The command, the real service, and the broker as the second witness."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.client.cli import main
from app.localdev.kafka import LocalKafka
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import PRINCIPALS, RunningService


@dataclass
class Ran:
    """What one run printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class Command:
    """Runs the command as a principal, in this process."""

    url: str
    tokens: Path
    capture: Callable[[], tuple[str, str]]
    options: Sequence[str] = field(default_factory=tuple)

    def __call__(self, *words: str, principal: str = "alice") -> Ran:
        """Run it; the server and the token come last."""
        service = ["--server", self.url, "--token-file", str(self.tokens / principal)]
        code = main([*words, *service])
        return Ran(code, *self.capture())

    def printed(self, *words: str, principal: str = "alice") -> str:
        """Return what a run prints that is done, and says nothing else."""
        ran = self(*words, principal=principal)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    def altered(self, *words: str) -> str:
        """Return what a change that is done says on standard error; it prints nothing else."""
        ran = self(*words)
        assert (ran.code, ran.out) == (0, "")
        return ran.err


@pytest.fixture
def raw(broker: LocalKafka) -> Iterator[RawQuotas]:
    """The quota protocol by hand; no quota before and none after."""
    with RawQuotas(broker.bootstrap_servers) as connection:
        connection.become({})
        yield connection
        connection.become({})


@pytest.fixture
def command(
    service: RunningService,
    raw: RawQuotas,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """The command against the service of the run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in PRINCIPALS:
        (tmp_path / name).write_text(f"{name}\n")

    def capture() -> tuple[str, str]:
        captured = capsys.readouterr()
        return captured.out, captured.err

    return Command(service.url, tmp_path, capture)
