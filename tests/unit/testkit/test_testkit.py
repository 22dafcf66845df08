"""What a run prints beyond pytest's own, and what it counts."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.testkit import ledger
from tests.testkit.forkserver import DEADLINE_S, fork_server
from tests.testkit.groups import GROUPS, group_of
from tests.testkit.service import environment
from tests.testkit.virtual_time import in_virtual_time

ROOT = Path(__file__).resolve().parents[3]

TESTS = """
import subprocess
import pytest

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    return tmp_path_factory.mktemp("server")

def test_that_passes(server):
    log, later = server / "broker.log", server / "later"
    log.write_text("line of the broker\\n" * 100)
    later.touch()
    while later.stat().st_mtime_ns == log.stat().st_mtime_ns:
        later.touch()

def test_that_fails(server):
    (server / "postgres.log").write_text("line of Postgres\\n" * 100)
    (server / "0000.log").write_text("binary\\n")
    subprocess.run(["java", "-version"], check=True)
    assert not server
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name that does nothing."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.usefixtures("java")
def test_a_failure_comes_with_the_logs_that_the_test_wrote_and_a_run_with_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
):
    for variable in (ledger.VARIABLE, "PYTHONPATH"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    plugins = ["-p", "xdist", "-p", "tests.testkit.report", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", workers, *plugins, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout
    assert done.stdout.count("line of Postgres\n") == 30
    assert "/postgres.log ---" in done.stdout
    assert "line of the broker\n" not in done.stdout
    assert "binary\n" not in done.stdout
    assert "\n    1  `java -version`\n" in done.stdout


def test_a_program_is_counted_by_its_command_line(subtests: pytest.Subtests):
    for line, kind in [
        (
            "python pdeathsig.py 1 - 0 java -Xmx1g -cp kafka.jar kafka.Kafka node.properties",
            "broker",
        ),
        ("java -cp a kafka.tools.StorageTool format -t id", "JVM of StorageTool"),
        ("java -cp a kafka.admin.ConfigCommand --alter", "JVM of another Kafka tool"),
        ("java -cp a org.apache.kafka.tools.AclCommand --list", "JVM of another Kafka tool"),
        ("/pyspark/bin/spark-submit --conf a pyspark-shell", "JVM of Spark and of its launcher"),
        ("python pdeathsig.py 1 nobody 1 /bin/postgres -D data", "Postgres"),
        ("python -m app.main serve", "service"),
        ("python -m app.main dev --load", "command `dev`"),
        ("python -m app.main migrate", "another command of the service"),
        ("/bin/quota-pipeline ingest --input a", "command of the pipeline"),
        ("curl http://127.0.0.1/serve", None),
    ]:
        with subtests.test(line=line, kind=kind):
            assert ledger.kind_of(line.split()) == kind


@pytest.mark.usefixtures("java")
def test_what_a_command_starts_is_counted_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "ledger"))
    program = "import subprocess; subprocess.run(['java', '-version'], check=True)"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert ledger.counts(tmp_path / "ledger") == {"`java -version`": 1}


def test_every_folder_and_file_of_the_table_is_there():
    assert [path for path in GROUPS if not (ROOT / path).exists()] == []


def test_the_deepest_folder_wins():
    assert group_of("tests/pipeline/test_interrupts.py") == "a pipeline that is interrupted"
    assert group_of("tests/pipeline/publish/test_publish.py") == "Spark"


def test_a_file_of_no_group_is_a_group():
    assert group_of("tests/unit/test_logs.py") == "tests/unit/test_logs.py"
    assert group_of("tests/integration/http2/test_it.py") == "tests/integration/http2/test_it.py"


@in_virtual_time
async def test_timers_fire_in_their_order_at_the_time_that_they_were_set_for():
    fired = []
    began = time.monotonic()

    async def fire(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        fired.append((name, round(time.monotonic() - began)))

    await asyncio.gather(fire("day", 86_400), fire("hour", 3_600), fire("now", 0))
    assert fired == [("now", 0), ("hour", 3_600), ("day", 86_400)]


@in_virtual_time
async def test_a_time_out_ends_what_never_ends():
    began = time.monotonic()
    try:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()
    except TimeoutError:
        assert round(time.monotonic() - began) == 60
    else:
        raise AssertionError("it has ended")


@in_virtual_time
async def test_no_time_passes_while_a_thread_works():
    go = threading.Event()
    timer = threading.Timer(0.05, go.set)
    timer.start()
    began = time.monotonic()
    async with asyncio.timeout(1):
        assert await asyncio.to_thread(go.wait, 30)
    assert time.monotonic() == began
    timer.join()


def test_a_start_has_its_own_environment_output_and_exit_code(tmp_path: Path):
    ends = {}
    for name in ("QUOTAS_PORTT", "QUOTAS_HOSTT"):
        out, errors = tmp_path / f"{name}.out", tmp_path / f"{name}.errors"
        process = fork_server().start(["serve"], environment({name: "1"}), out, errors)
        assert process.wait(DEADLINE_S) == 2
        assert (process.poll(), out.read_text()) == (2, "")
        ends[name] = errors.read_text()
    assert "QUOTAS_PORTT is not a setting" in ends["QUOTAS_PORTT"]
    assert "QUOTAS_HOSTT is not a setting" in ends["QUOTAS_HOSTT"]
    assert "QUOTAS_PORTT" not in ends["QUOTAS_HOSTT"]


def test_the_settings_of_a_developer_do_not_reach_a_service(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QUOTAS_PORT", "8080")
    assert environment({"QUOTAS_MODE": "development"}).get("QUOTAS_PORT") is None


def test_a_signal_ends_it_with_the_code_that_a_child_would_have(tmp_path: Path):
    arguments = ["migrate"]
    settings = {"QUOTAS_DATABASE_URL": "postgresql://quotas@192.0.2.1/quotas"}
    process = fork_server().start(arguments, environment(settings), tmp_path / "out")
    process.send_signal(signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    process.send_signal(signal.SIGKILL)
