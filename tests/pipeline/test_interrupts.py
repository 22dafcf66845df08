"""Ctrl-C and SIGTERM end the program in a sentence, and leave no process behind."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.errors import PySparkException

from app.pipeline.errors import InfrastructureError
from app.pipeline.spark import deferred_interrupts, is_logged, spark_failures
from tests.testkit.bucket_worlds import facts_of_minutes, minute, publish
from tests.testkit.patience import wait_until
from tests.testkit.processes import processes_of

DEADLINE_S = 120.0
INTERRUPTED = 130


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    """Let Python handle Ctrl-C, which is ignored where a shell runs the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(done: list[str], *, times: int) -> None:
    with deferred_interrupts():
        for number in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            done.append(f"signal {number}")


@pytest.mark.parametrize("times", [1, 3])
def test_the_first_interrupt_waits_for_the_end_of_the_block_and_the_second_one_does_not(times: int):
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt(done, times=times)
    assert done == ["signal 0"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    done: list[str] = []
    interrupt(done, times=2)
    assert done == ["signal 0", "signal 1"]


def test_a_call_to_the_jvm_that_is_interrupted_logs_no_stack():
    texts = (
        *("KeyboardInterrupt while sending command.", "Exception while sending command."),
        *("Exception occurred while shutting down connection", "something else"),
    )
    records = [logging.makeLogRecord({"msg": text}) for text in texts]
    assert [is_logged(record) for record in records] == [False, False, False, True]


def fail_of_jobs(*, interrupted: bool) -> None:
    with spark_failures():
        try:
            if interrupted:
                raise KeyboardInterrupt
        finally:
            raise PySparkException("[SPARK_JOB_CANCELLED] Job 1 cancelled")


def test_jobs_that_ctrl_c_has_cancelled_are_no_failure_of_spark():
    with pytest.raises(InfrastructureError, match="SPARK_JOB_CANCELLED"):
        fail_of_jobs(interrupted=False)
    with pytest.raises(KeyboardInterrupt):
        fail_of_jobs(interrupted=True)


WITHOUT_JVM = """
from app.pipeline.errors import InfrastructureError
from app.pipeline.spark import spark_failures, spark_session
try:
    with spark_session("test", master="local[1]") as session, spark_failures():
        session.sparkContext._gateway.proc.kill()
        session.range(5).count()
except InfrastructureError as error:
    print(error)
"""


def test_a_jvm_that_dies_is_a_failure_in_a_sentence():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JVM],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.stdout.startswith("Spark failed: its JVM has ended"), done.stderr
    assert "Traceback" not in done.stderr


IN_A_TASK = """
import sys
import threading
from pathlib import Path
from app.pipeline.spark import spark_failures, spark_session

begun = Path(sys.argv[1])

def wait(batches):
    begun.touch()
    threading.Event().wait()

try:
    with spark_session("test", master="local[1]") as session, spark_failures():
        session.range(5).mapInArrow(wait, "id long").count()
except KeyboardInterrupt:
    print("stopped")
"""


def test_ctrl_c_of_a_terminal_stops_what_waits_for_a_task(tmp_path: Path):
    begun = tmp_path / "begun"
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_TASK, str(begun)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            wait_until(lambda: begun.exists() or program.poll() is not None, within_s=DEADLINE_S)
            os.killpg(program.pid, signal.SIGINT)
            out, errors = program.communicate(timeout=DEADLINE_S)
            assert (out, program.returncode) == ("stopped\n", 0), errors
            wait_until(lambda: not processes_of(program.pid), within_s=DEADLINE_S)
        finally:
            for process in processes_of(program.pid):
                os.kill(process, signal.SIGKILL)


def test_a_command_that_is_interrupted_while_its_jvm_starts_leaves_nothing_behind(tmp_path: Path):
    publish(tmp_path, facts_of_minutes([minute(0)]))
    program = [sys.executable, "-m", "app.pipeline.main", "utilization"]
    command = subprocess.Popen(
        [*program, "--input", str(tmp_path), "--out", str(tmp_path), "--master", "local[1]"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: psutil.Process(command.pid).children(), within_s=DEADLINE_S)
        command.send_signal(signal.SIGTERM)
        stderr = command.communicate(timeout=DEADLINE_S)[1]
        assert command.returncode == INTERRUPTED, stderr
        assert stderr.splitlines()[-1].startswith("quota-pipeline utilization: stopped")
        assert "Traceback" not in stderr
        wait_until(lambda: not processes_of(command.pid), within_s=DEADLINE_S)
    finally:
        for process in processes_of(command.pid):
            os.kill(process, signal.SIGKILL)
