import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.rows import dict_row

from app.pipeline.commands.worker import Queue, QueuedRun, command_of
from app.pipeline.errors import UsageError
from app.pipeline.run_records import URL_VARIABLE, connect
from app.pipeline.tables import BUCKET_MINUTE
from tests.testkit.bucket_worlds import DAY, minute, publish
from tests.testkit.patience import wait_until
from tests.testkit.postgres import AuditDatabase
from tests.testkit.processes import processes_of
from tests.testkit.sizes import size

DEADLINE_S = 240.0

WORKER = (sys.executable, "-m", "app.pipeline.main", "worker", "--json")


def queue(url: str, run_id: str, job: str, **options: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into pipeline_run (run_id, job, options, state) values (%s, %s, %s, 'queued')",
            [run_id, job, json.dumps(options)],
        )


def run_of(url: str, run_id: str) -> dict[str, Any]:
    with psycopg.connect(url, row_factory=dict_row, options="-c timezone=UTC") as connection:
        row = connection.execute(
            "select * from pipeline_run where run_id = %s", [run_id]
        ).fetchone()
    assert row is not None
    return row


def work(url: str, folder: Path) -> Mapping[str, Any]:
    """Let a worker do what is queued, and return its report."""
    done = subprocess.run(
        [*WORKER, "--once", "--data-dir", str(folder)],
        env={**os.environ, URL_VARIABLE: url},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def test_a_queued_run_is_done_and_published(audit_database: AuditDatabase, tmp_path: Path):
    url = audit_database.service_url
    publish(tmp_path / "in", {BUCKET_MINUTE: [minute(n, rate_max=150.0) for n in range(3)]})
    queue(url, "good", "utilization", input=["in"], out="out")
    period = {"from": "2026-02-02T00:00:00Z", "to": "2026-02-01T00:00:00Z"}
    queue(url, "bad", "utilization", **period)  # which fails before Spark starts
    queue(url, "outside", "utilization", input="/", out="out")
    report = work(url, tmp_path)
    assert (report["succeeded"], report["failed"]) == (1, 2)
    good, bad, outside = (run_of(url, name) for name in ("good", "bad", "outside"))
    assert (good["state"], good["error"]) == ("succeeded", None)
    assert "utilization_daily" in good["published"]
    assert good["data_through"] == DAY.replace(minute=3)
    assert good["rows_out"] > 0
    assert bad["state"] == "failed"
    assert "--to must be later than --from" in bad["error"]
    assert "below the worker's data folder" in outside["error"]
    with psycopg.connect(url) as connection:
        query = "select max(peak) from utilization_daily"
        assert connection.execute(query).fetchone() == (150.0,)


def test_a_worker_that_is_stopped_says_so_and_leaves_nothing_behind(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    publish(tmp_path, {BUCKET_MINUTE: [minute(0)]})
    queue(url, "long", "utilization")
    worker = subprocess.Popen(
        [*WORKER, "--data-dir", str(tmp_path)],
        env={**os.environ, URL_VARIABLE: url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        children = psutil.Process(worker.pid).children
        wait_until(lambda: len(children()) == 1, within_s=DEADLINE_S)
        run = children()[0].pid
        # In a long run Spark has started its JVM.
        wait_until(lambda: len(processes_of(run)) >= size(1, 2), within_s=DEADLINE_S)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_S) == 130
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not processes_of(run), within_s=DEADLINE_S)
    assert run_of(url, "long")["state"] == "failed"
    assert "worker was stopped" in run_of(url, "long")["error"]


def test_a_running_run_is_cancelled(audit_database: AuditDatabase, tmp_path: Path):
    url = audit_database.service_url
    publish(tmp_path, {BUCKET_MINUTE: [minute(0)]})
    queue(url, "unwanted", "utilization")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update pipeline_run set cancel_requested = true")
    assert work(url, tmp_path)["cancelled"] == 1
    assert run_of(url, "unwanted")["state"] == "cancelled"
    with psycopg.connect(url) as connection:
        assert connection.execute("select count(*) from utilization_daily").fetchone() == (0,)


def test_a_run_goes_to_one_worker_and_its_death_is_noticed(audit_database: AuditDatabase):
    url = audit_database.service_url
    queue(url, "first", "utilization")
    queue(url, "second", "incidents", input=["a", "b"])
    with connect(url) as first, connect(url) as another:
        taken, other = Queue(first).take(), Queue(another).take()
        assert taken is not None
        assert other is not None
        assert (taken.run_id, other.run_id) == ("first", "second")
        assert other.options == {"input": ("a", "b")}
        assert Queue(another).take() is None
        with connect(url) as third:
            assert Queue(third).give_up_dead() == 0
            first.close()
            wait_until(lambda: Queue(third).give_up_dead() == 1, within_s=DEADLINE_S)
    assert run_of(url, "first")["state"] == "failed"
    assert "died" in run_of(url, "first")["error"]


def test_options_become_a_command_line_below_the_root(tmp_path: Path):
    options = {"input": ("a", "b/c"), "as-of": "history", "gap": 3, "cluster": "--pg"}
    command = command_of(QueuedRun(1, "r", "run", options), tmp_path)
    assert command[1:4] == ["-m", "app.pipeline.main", "run"]
    assert command[4:] == [
        f"--input={tmp_path / 'a'}",
        f"--input={tmp_path / 'b/c'}",
        f"--out={tmp_path}",
        f"--quotas={tmp_path}",
        "--as-of=history",
        "--gap=3",
        "--cluster=--pg",
        "--pg",
    ]
    assert "--pg" not in command_of(QueuedRun(1, "r", "ingest", {}), tmp_path)


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("worker", {}),
        ("run", {"conf": "spark.jars=x"}),
        ("run", {"out": "../x"}),
        ("run", {"out": "/etc"}),
        ("run", {"map": "link/secret"}),
    ],
)
def test_what_leaves_the_root_or_is_not_allowed_is_refused(
    tmp_path: Path, job: str, options: dict[str, Any]
):
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError):
        command_of(QueuedRun(1, "r", job, options), root)
