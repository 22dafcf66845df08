"""What pytest reports beyond its own: the logs of a failed test's servers, and the ledger."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit import ledger

_LAST_LINES = 30
_LOGS = "[a-z]*.log"
"""Kafka's own files have names of digits."""

_BASE_TEMP = pytest.StashKey[Path]()
_BEGUN = pytest.StashKey[int]()
_LEDGER = pytest.StashKey[Path]()


@pytest.fixture(scope="session", autouse=True)
def _base_temp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    request.config.stash[_BASE_TEMP] = tmp_path_factory.getbasetemp()


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGUN] = _now_of_files()


def _now_of_files() -> int:
    """Return the time that a file written now gets, which may be a tick behind the clock."""
    with tempfile.TemporaryFile() as file:
        return os.fstat(file.fileno()).st_mtime_ns


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the last lines of the logs to the report of a failure."""
    report = yield
    if report.failed:
        report.sections += [(f"end of {log}", _last_lines(log)) for log in _logs_of(item)]
    return report


def _logs_of(item: pytest.Item) -> list[Path]:
    """Return the logs of the test's fixtures, and those written to since the test began."""
    fixtures = getattr(item, "funcargs", {}).values()
    logs = {getattr(fixture, "log_path", None) for fixture in fixtures}
    if folder := item.config.stash.get(_BASE_TEMP, None):
        begun = item.stash[_BEGUN]
        logs |= {log for log in folder.rglob(_LOGS) if log.stat().st_mtime_ns >= begun}
    return sorted(log for log in logs if isinstance(log, Path) and log.is_file())


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])


def pytest_configure(config: pytest.Config) -> None:
    """Begin the ledger of the run, unless this is a worker, which inherits it."""
    if ledger.VARIABLE in os.environ:
        return
    number, path = tempfile.mkstemp(prefix="test-ledger-")
    os.close(number)
    config.stash[_LEDGER] = Path(path)
    os.environ[ledger.VARIABLE] = path
    paths = [str(Path(__file__).with_name("ledger_site")), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    ledger.watch()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the ledger."""
    if _LEDGER not in config.stash:
        return
    counts = ledger.counts(config.stash[_LEDGER])
    if counts:
        terminalreporter.section("servers and JVMs that were started")
    for kind in (*ledger.KINDS, *sorted(counts.keys() - ledger.KINDS)):
        if counts[kind]:
            terminalreporter.line(f"{counts[kind]:5d}  {kind}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the ledger at the end of the run."""
    if _LEDGER in config.stash:
        config.stash[_LEDGER].unlink()
        del os.environ[ledger.VARIABLE]
