"""What a run prints beyond pytest's own, and what it counts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit import ledger

ROOT = Path(__file__).resolve().parents[3]

TESTS = """
import subprocess
import pytest

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    return tmp_path_factory.mktemp("server")

def test_that_passes(server):
    (server / "broker.log").write_text("line of the broker\\n" * 100)

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
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    options = ["-n", workers, "-p", "tests.testkit.report", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, tmp_path],
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


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("python launch.py 1 - 0 java -Xmx1g -cp kafka.jar kafka.Kafka node.properties", "broker"),
        ("java -cp a kafka.tools.StorageTool format -t id", "JVM of StorageTool"),
        ("java -cp a kafka.admin.ConfigCommand --alter", "JVM of another Kafka tool"),
        ("java -cp a org.apache.kafka.tools.AclCommand --list", "JVM of another Kafka tool"),
        ("/pyspark/bin/spark-submit --conf a pyspark-shell", "JVM of Spark and of its launcher"),
        ("python launch.py 1 nobody 1 /bin/postgres -D data", "Postgres"),
        ("python -m app.main serve", "service"),
        ("python -m app.main dev --load", "command `dev`"),
        ("python -m app.main migrate", "another command of the service"),
        ("/bin/quota-pipeline ingest --input a", "command of the pipeline"),
        ("curl http://127.0.0.1/serve", None),
    ],
)
def test_a_program_is_counted_by_its_command_line(line: str, kind: str | None):
    assert ledger.kind_of(line.split()) == kind


@pytest.mark.usefixtures("java")
def test_what_a_command_starts_is_counted_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "ledger"))
    program = "import subprocess; subprocess.run(['java', '-version'], check=True)"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert ledger.counts(tmp_path / "ledger") == {"`java -version`": 1}
