"""What pytest reports beyond its own: the logs of a failed test's servers."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_LAST_LINES = 30
_LOGS = "[a-z]*.log"
"""Kafka's own files have names of digits."""

_BASE_TEMP = pytest.StashKey[Path]()
_BEGUN = pytest.StashKey[float]()


@pytest.fixture(scope="session", autouse=True)
def _base_temp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    request.config.stash[_BASE_TEMP] = tmp_path_factory.getbasetemp()


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGUN] = time.time()


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
        logs |= {log for log in folder.rglob(_LOGS) if log.stat().st_mtime >= begun}
    return sorted(log for log in logs if isinstance(log, Path) and log.is_file())


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
