import signal
import subprocess
import sys

import pytest

from app.localdev import parent_make

PROGRAM = """
import os, sys
from app.localdev.parent_make import ParentMake
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


def test_one_look_at_a_parent_that_blocks_interrupts_is_not_enough(
    monkeypatch: pytest.MonkeyPatch,
):
    looks = iter([False, True, False, True, True])
    monkeypatch.setattr(parent_make, "_blocks_interrupts", lambda _pid: next(looks))
    make = parent_make.ParentMake({"MAKELEVEL": "1"})
    assert [make.wants_us_to_stop() for _ in range(4)] == [False, False, False, True]


def test_without_make_nobody_wants_us_to_stop():
    program = (
        "from app.localdev.parent_make import ParentMake; print(ParentMake({}).wants_us_to_stop())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
