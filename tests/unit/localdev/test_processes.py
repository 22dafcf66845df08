"""Processes that `dev` starts, and the processes that started it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.localdev import processes
from app.localdev.local_directory import LocalDevError
from app.localdev.processes import ManagedProcess, wait_until_ended
from app.localdev.service import LocalService
from tests.testkit.patience import wait_until

DEADLINE_S = 30
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
OBEDIENT = (
    "import signal, sys, time;"
    "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit()));"
    "print('ready', flush=True); time.sleep(600)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(600)"
)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ManagedProcess]:
    child = ManagedProcess("A child", tmp_path / "child.log")
    yield child
    child.kill()


def start(child: ManagedProcess, *command: str) -> None:
    child.spawn(command, directory=Path("/"), environ={})


def has_ended(pid: int) -> bool:
    wait_until_ended([pid], DEADLINE_S)
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_paused_child_is_stopped_by_the_signal_it_is_asked_with(child: ManagedProcess):
    start(child, sys.executable, "-c", OBEDIENT)
    wait_until(lambda: child.last_lines() == "ready")
    pid = child.pid
    child.pause()
    child.stop(DEADLINE_S)
    assert not child.is_running()
    assert child.last_lines() == "ready\nasked"
    assert has_ended(pid)


def test_a_child_that_ignores_the_signal_is_killed_at_the_deadline(child: ManagedProcess):
    start(child, sys.executable, "-c", STUBBORN)
    wait_until(lambda: child.last_lines() == "deaf")
    pid = child.pid
    child.stop(0.1)
    assert has_ended(pid)


def test_a_child_runs_in_a_session_of_its_own(child: ManagedProcess):
    start(child, *SLEEP)
    assert os.getsid(child.pid) == child.pid


def test_a_child_outlives_the_thread_that_started_it(child: ManagedProcess):
    thread = threading.Thread(target=start, args=(child, *SLEEP))
    thread.start()
    thread.join()
    assert child.is_running()


def test_the_process_id_of_a_child_that_was_not_started_is_an_error(child: ManagedProcess):
    with pytest.raises(LocalDevError, match="is not running"):
        assert child.pid


PROGRAM = """
import os, sys
from app.localdev.processes import ParentMake
sys.stdin.readline()
make = ParentMake(os.environ)
print("watching", flush=True)
while not make.wants_us_to_stop():
    pass
print("stopping", flush=True)
"""

# Stands for make: it starts the program, and at SIGINT waits in its handler, as GNU make does.
MAKE = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "MAKELEVEL": "1"})
def interrupted(number, frame):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
signal.signal(signal.SIGINT, interrupted)
print("started", flush=True)
child.wait()
"""


@pytest.mark.parametrize("ending", ["SIGINT", "SIGKILL"])
def test_a_make_that_is_interrupted_or_killed_stops_us(ending: str):
    command = [sys.executable, "-c", MAKE, PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as make:
        assert make.stdout is not None
        assert make.stdin is not None
        assert make.stdout.readline() == "started\n"
        make.stdin.write("\n")
        make.stdin.flush()
        assert make.stdout.readline() == "watching\n"
        make.send_signal(signal.Signals[ending])
        assert make.stdout.readline() == "stopping\n"


def test_one_look_at_a_parent_that_blocks_interrupts_is_not_enough(monkeypatch: pytest.MonkeyPatch):
    looks = iter([False, True, False, True, True])
    monkeypatch.setattr(processes, "_blocks_interrupts", lambda _pid: next(looks))
    make = processes.ParentMake({"MAKELEVEL": "1"})
    assert [make.wants_us_to_stop() for _ in range(4)] == [False, False, False, True]


def test_without_make_nobody_wants_us_to_stop():
    assert not processes.ParentMake({}).wants_us_to_stop()


def ready(prod: str, staging: str) -> tuple[int, Any]:
    return 200, {"clusters": {"prod": {"status": prod}, "staging": {"status": staging}}}


def test_a_service_of_several_clusters_is_up_once_each_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answers = iter([(503, {}), ready("ok", "unavailable"), ready("ok", "ok")])
    service = LocalService("127.0.0.1", 1, tmp_path / "log")
    for name, act in (("spawn", None), ("is_running", True)):
        monkeypatch.setattr(service, name, lambda *_, act=act, **__: act)
    monkeypatch.setattr(service, "_ask", lambda *_: next(answers))
    service.start({})
    assert next(answers, None) is None
