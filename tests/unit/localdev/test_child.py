import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.localdev.child import Child
from app.localdev.descendants import descendants_of, wait_until_ended
from app.localdev.errors import LocalDevError

DEADLINE_S = 30
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(600)"
)

PARENT = """
import pathlib, sys, time
from app.localdev.child import Child
child = Child("A child", pathlib.Path(sys.argv[1]))
child.start(sys.argv[2:], directory=pathlib.Path("/"), environ={})
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    child = Child("A child", tmp_path / "child.log")
    yield child
    child.kill()


def start(child: Child, *command: str) -> None:
    child.start(command, directory=Path("/"), environ={})


def has_ended(pid: int) -> bool:
    wait_until_ended([pid], DEADLINE_S)
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_child_is_stopped_by_the_signal_it_is_asked_with(child: Child):
    start(child, *SLEEP)
    pid = child.pid
    child.stop(signal.SIGTERM, DEADLINE_S)
    assert not child.is_running()
    assert has_ended(pid)


def test_a_paused_child_can_be_stopped(child: Child):
    start(child, *SLEEP)
    child.pause()
    child.stop(signal.SIGTERM, DEADLINE_S)
    assert not child.is_running()


def test_a_child_that_ignores_the_signal_is_killed_at_the_deadline(child: Child):
    start(child, sys.executable, "-c", STUBBORN)
    while "deaf" not in child.last_lines():
        assert child.is_running()
    pid = child.pid
    child.stop(signal.SIGTERM, 0.1)
    assert has_ended(pid)


def test_a_child_lives_in_a_session_of_its_own(child: Child):
    start(child, *SLEEP)
    assert os.getsid(child.pid) == child.pid


def test_a_child_outlives_the_thread_that_started_it(child: Child):
    thread = threading.Thread(target=start, args=(child, *SLEEP))
    thread.start()
    thread.join()
    assert child.is_running()


def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path):
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log"), *SLEEP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert descendants_of(parent.pid) == [pid]
        parent.kill()
    assert has_ended(pid)


def test_output_goes_to_the_log(child: Child):
    start(child, sys.executable, "-c", "print('hello')")
    while child.is_running():
        pass
    assert child.last_lines() == "hello"


def test_the_process_id_of_a_child_that_was_not_started_is_an_error(child: Child):
    with pytest.raises(LocalDevError, match="is not running"):
        assert child.pid
