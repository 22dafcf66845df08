"""Nobody takes the lines of the log any more, as on a full disk: the service goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.faults.http.conftest import Serve
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import alter, ask
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService

ROUNDS = 30
"""Their lines are more than any buffer holds."""


@contextmanager
def full_log(service: RunningService) -> Iterator[None]:
    """Let no file of the service grow beyond what its log has."""
    assert service.process is not None
    process = psutil.Process(service.process.pid)
    soft, hard = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (service.log_path.stat().st_size, hard))
    try:
        yield
    finally:
        if process.is_running():
            process.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))


def test_a_full_log_costs_no_request_and_whole_lines_come_after_it(serve: Serve) -> None:
    service = serve()
    with full_log(service):
        for _ in range(ROUNDS):
            assert ask(service, "GET", "/quotas").status_code == 200
            problem_of(ask(service, "GET", "/quotas", principal="nobody"), 401)
            answer = alter(service, unique("full-log"))
            assert answer.json()["outcome"] == "applied"
    assert ask(service, "GET", "/readyz").status_code == 200
    wait_until(lambda: service.lines()[-1].get("route") == "/readyz", "nothing is logged again")


def test_a_stop_on_a_full_log_has_exit_code_0(serve: Serve) -> None:
    service = serve()
    with full_log(service):
        assert ask(service, "GET", "/quotas").status_code == 200
        assert service.stop() == 0
