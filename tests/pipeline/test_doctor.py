"""The doctor: a healthy world has no findings, and each ailment is reported with what to do."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from app.domain.broker_metrics import Sample
from app.pipeline.commands.collect import CollectedFiles, Scrape
from app.pipeline.main import main
from app.pipeline.tables import (
    BUCKET_HOUR,
    QUARANTINE,
    QUOTA_CONFLICT,
    QUOTA_VERSION,
    THROTTLE_INCIDENT,
    UTILIZATION_HIST,
)
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import (
    DAY,
    Row,
    facts_of_observations,
    observation,
    publish,
    version,
)
from tests.testkit.http import serving


def examined(command: Command, *options: str | Path) -> tuple[int, dict[str, Any]]:
    """Run the doctor; return the exit code, and the checks by name."""
    done = command("doctor", "--json", "--fail-on", "findings", *options)
    report = json.loads(done.stdout)
    assert report["findings"] == report["warn"] + report["fail"]
    return done.returncode, {check["check"]: check for check in report["checks"]}


def healthy() -> dict[Any, list[Row]]:
    return {
        **facts_of_observations(observation(number, "alice", "etl", 10.0) for number in range(10)),
        BUCKET_HOUR: [hour(10)],
        QUOTA_VERSION: [version("producer_byte_rate", 1.0)],
        # Of these no row is the good case.
        QUARANTINE: [],
        QUOTA_CONFLICT: [],
        THROTTLE_INCIDENT: [],
    }


def hour(minutes: int, **columns: Any) -> Row:
    """Return a row of ``bucket_hour`` of that many quiet minutes."""
    row: Row = {"cluster_id": "c1", "dt": DAY.date(), "hour": 0, "broker_id": 1, "bucket_id": 7}
    row |= {"key": "producer_byte_rate", "level": 3, "limit": 100.0, "minutes": minutes}
    row |= {"minutes_over_100": 0, "present": 2**minutes - 1}
    return row | columns


@pytest.mark.small
def test_a_healthy_world_has_no_findings(spark_command: Command, tmp_path: Path):
    options = ("--master", "local[2]", "--input", publish(tmp_path / "in", healthy()))
    code, checks = examined(spark_command, *options)
    assert code == 0
    assert "on local[2] starts and counts" in checks["spark"]["detail"]
    assert {check["status"] for check in checks.values()} == {"ok"}
    assert "10 rows, 2026-11-20 00:00 to 2026-11-20 00:09 UTC" in (checks["rate_minute"]["detail"])
    assert "rows, 2026-11-20 00:00 to 2026-11-20 00:00 UTC" in checks["bucket_hour"]["detail"]
    assert {"java", "python", "pyspark", "pyarrow", "spark", "cluster ids"} <= set(checks)


AILMENTS = {
    "cluster ids": "No quota is of the cluster 'prod', so all of its rows are unlimited",
    "names decoded": "urlencoded: true",
    "names present": "keeps these two labels",
    "metric Fetch": "add an exporter rule for kafka.server:type=Fetch",
    "level 0": "see that --quotas is of this cluster",
    "throttle times": "attribute throttle-time",
    "coverage of broker 2 of c1": "2 of 10 minutes",
    "coverage of broker 3 of c1": "3 of 10 minutes",
    "clocks of c1": "the last minute of broker 3 is more than 5 minutes before",
    "clocks of prod": "set the clocks by NTP",
    "quarantine": "no value (3)",
    "utilization_hist": "look at the report of the job",
}


def test_each_ailment_is_reported_with_what_to_do(tmp_path: Path, spark_command: Command):
    world = healthy()
    time = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(hours=1)
    more = [
        # The last day is that of a cluster whose clock is wrong, and has no names.
        observation(0, "", "", 1.0, ts=time, dt=time.date(), cluster_id="prod"),
        observation(3, "team%20a", "", 1.0),
        *(observation(number, "a", "b", 1.0, broker_id=2) for number in (0, 9)),
        *(observation(number, "a", "b", 1.0, broker_id=3) for number in range(3)),
    ]
    for table, rows in facts_of_observations(more).items():
        world[table] += rows
    world[BUCKET_HOUR] += [
        hour(20, bucket_id=8, level=0, limit=None),
        hour(1, bucket_id=9, minutes_over_100=1),
    ]
    world[QUOTA_VERSION].append(version("consumer_byte_rate", 1.0))
    quarantined = {"source": "f", "line": 1, "raw": "x", "reason": "no value", "n": 3}
    quarantined |= {"cluster_id": "c1", "dt": DAY.date(), "hour": 0}
    world |= {QUARANTINE: [quarantined], UTILIZATION_HIST: []}
    code, checks = examined(spark_command, "--input", publish(tmp_path, world))
    assert code == 4
    found = {name: check["detail"] for name, check in checks.items() if check["status"] != "ok"}
    assert set(found) == set(AILMENTS)
    assert {name for name in found if AILMENTS[name] not in found[name]} == set()


@pytest.mark.parametrize("name", [".", "nowhere"])
def test_a_folder_without_tables_and_a_missing_one_are_named(
    tmp_path: Path, spark_command: Command, name: str
):
    code, checks = examined(spark_command, "--input", tmp_path / name)
    assert (code, checks["tables"]["status"]) == (4, "fail")
    assert "has no table of these jobs" in checks["tables"]["detail"]


def test_before_a_run_collected_metrics_are_compared_with_the_quotas(
    tmp_path: Path, spark_command: Command
):
    publish(tmp_path, {QUOTA_VERSION: [version("producer_byte_rate", 1.0)]})
    files = CollectedFiles(tmp_path, "prod")
    files.add([Scrape(DAY.timestamp(), 1)])
    files.write()
    _, checks = examined(spark_command, "--input", tmp_path)
    assert checks["cluster ids"]["status"] == "fail"
    assert "there are quotas of 'c1'" in checks["cluster ids"]["detail"]


def test_collected_metrics_tell_of_missing_rules_and_of_rules_in_the_wrong_order(
    tmp_path: Path, spark_command: Command
):
    files = CollectedFiles(tmp_path, "c")
    rate = "kafka_server_produce_byte_rate"
    files.add(
        [
            Scrape(DAY.timestamp(), 1),
            Scrape(DAY.timestamp(), 2, [Sample(rate, "", "alice, client-id=etl", "", 5.0)]),
            Scrape(DAY.timestamp(), 3, problem="is down"),
        ]
    )
    files.write()
    _, checks = examined(spark_command, "--input", tmp_path)
    assert {name: check["status"] for name, check in checks.items() if "quota metrics" in name} == {
        "quota metrics of broker 1 of c": "warn",
        "quota metrics of broker 2 of c": "ok",
        "quota metrics of broker 3 of c": "ok",
    }
    assert (
        "no quotas are set, or the exporter has no rule"
        in checks["quota metrics of broker 1 of c"]["detail"]
    )
    assert checks["exporter rules"]["status"] == "warn"


def test_a_key_without_observations_is_no_fact_about_quotas(tmp_path: Path, spark_command: Command):
    world = facts_of_observations([observation(0, "alice", "etl", 10.0)])
    _, checks = examined(spark_command, "--input", publish(tmp_path, world))
    assert checks["metric Fetch"]["detail"] == (
        "consumer_byte_rate is not observed: no quotas are set, or the exporter has no rule for "
        "them."
    )


@pytest.mark.parametrize(
    ("status", "answer", "detail"),
    [
        (200, {"authoritative": True}, "results are authoritative"),
        (200, {"authoritative": False}, "client.quota.callback.class"),
        (403, {"code": "cluster-authorization-failed"}, "403 cluster-authorization-failed"),
    ],
)
def test_the_service_tells_whether_brokers_decide_otherwise(
    tmp_path: Path, command: Command, status: int, answer: dict[str, Any], detail: str
):
    asked = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        asked.append((request.path, request.headers["Authorization"]))
        return status, json.dumps(answer)

    token = tmp_path / "token"
    token.write_text("secret\n")
    with serving(respond) as url:
        code, checks = examined(command, "--dry-run", "--server", url, "--token-file", token)
    assert asked == [("/quotas/resolve?user=ANONYMOUS", "Bearer secret")]
    assert code == (0 if answer.get("authoritative") else 4)
    assert detail in checks["quota callback"]["detail"]


def test_a_token_that_cannot_be_read_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "none")]
    assert main(["doctor", "--dry-run", *options]) == 2
    assert "--token-file" in capsys.readouterr().err


def test_people_get_a_line_for_each_check(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("OK    java: ")
    assert "fail: 0" in lines


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "status", "detail"),
    [
        ((), "ok", "on local[2] starts and counts"),
        (("--conf", "spark.driver.memory=none"), "fail", "Look at --master and --conf"),
    ],
)
def test_spark_is_really_started(settings: tuple[str, ...], status: str, detail: str):
    doctor = [sys.executable, "-m", "app.pipeline.main", "doctor", "--json"]
    command = [*doctor, "--master", "local[2]", *settings]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    [check] = [item for item in json.loads(ended.stdout)["checks"] if item["check"] == "spark"]
    assert check["status"] == status
    assert detail in check["detail"]
