"""``snapshot`` keeps what a real service says, and names what keeps it from doing so."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from app.pipeline.lake import Lake
from app.pipeline.tables import QUOTA_VERSION
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import frame
from tests.testkit.http import closed_port
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

QUOTAS = {
    (("user", "alice"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
    (("user", None),): {"consumer_byte_rate": 2.0**63},
    (("client-id", "a/b=c%"), ("user", "<default>")): {"controller_mutation_rate": 0.5},
    (("client-id", None), ("user", "alice")): {"request_percentage": float("inf")},
    (("client-id", None),): {"producer_byte_rate": 5.0},
    (("ip", "192.0.2.1"),): {"connection_creation_rate": 5.0},
}


def token_file(folder: Path, token: str) -> Path:
    file = folder / f"{token}.token"
    file.write_text(f"{token}\n")
    return file


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / table).to_pylist()
    return found


@pytest.fixture
def raw(service: RunningService):
    with RawQuotas(service.environ["QUOTAS_KAFKA_BOOTSTRAP_SERVERS"]) as raw:
        raw.become({frozenset(names): values for names, values in QUOTAS.items()})
        yield raw
        raw.become({})


@pytest.mark.small
def test_every_value_is_stored_but_those_of_addresses(
    spark_command: Command, service: RunningService, raw: RawQuotas, tmp_path: Path
):
    arguments = ["--server", service.url, "--token-file", token_file(tmp_path, "bob")]
    begun = datetime.now(UTC)
    out = tmp_path / "out"
    runs = set()
    for _ in range(2):
        done = spark_command("snapshot", *arguments, "--out", out, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        runs.add(report["run_id"])
    assert len(runs) == 2, "another time is another run"
    assert (report["entities"], report["ip_entities_left_out"], report["rows_out"]) == (5, 1, 6)

    versions = rows(out, "quota_version")
    assert {
        (
            *(row["user"], row["user_default"], row["client_id"], row["client_default"]),
            *(row["key"], row["value"]),
        )
        for row in versions
    } == {
        ("alice", False, "", False, "producer_byte_rate", 1024.0),
        ("alice", False, "", False, "request_percentage", 12.5),
        ("", True, "", False, "consumer_byte_rate", 2.0**63),
        ("<default>", False, "a/b=c%", False, "controller_mutation_rate", 0.5),
        ("alice", False, "", True, "request_percentage", float("inf")),
        ("", False, "", True, "producer_byte_rate", 5.0),
    }
    assert len(versions) == 6
    (since,) = {row["valid_from"] for row in versions}
    taken_at = datetime.fromisoformat(report["taken_at"])
    assert begun < since < taken_at <= datetime.now(UTC)
    assert {(row["origin"], row["valid_to"], row["audit_seq"]) for row in versions} == {
        ("snapshot", None, None)
    }
    taken = rows(out, "quota_snapshot")
    assert len({row["snapshot_id"] for row in taken}) == 2
    assert {row["taken_at"] for row in taken} == {since, taken_at}
    assert len(taken) == 12
    cluster = service.api("bob").get("/quotas").json()["cluster_id"]
    assert {row["cluster_id"] for row in taken + versions} == {cluster}


def test_versions_of_the_log_stay_and_end_where_the_snapshot_differs(
    spark_command: Command,
    service: RunningService,
    raw: RawQuotas,
    spark: SparkSession,
    tmp_path: Path,
):
    cluster = service.api("bob").get("/quotas").json()["cluster_id"]
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    alice = {"cluster_id": cluster, "user": "alice", "user_default": False, "client_id": ""}
    alice |= {"client_default": False, "origin": "audit", "audit_seq": 1, "alteration_id": "x"}
    stored = [
        {**alice, "key": "producer_byte_rate", "value": 1.0, "valid_from": begin, "valid_to": end},
        {**alice, "key": "producer_byte_rate", "value": 1024.0, "valid_from": end},
        {**alice, "key": "request_percentage", "value": 99.0, "valid_from": begin},
        {**alice, "key": "consumer_byte_rate", "value": 5.0, "valid_from": begin},
    ]
    Lake(spark, str(tmp_path)).write(frame(spark, QUOTA_VERSION, stored), QUOTA_VERSION)
    arguments = ["--server", service.url, "--token-file", token_file(tmp_path, "bob")]
    done = spark_command("snapshot", *arguments, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    taken_at = datetime.fromisoformat(json.loads(done.stdout)["taken_at"])
    versions = {
        (row["key"], row["value"], row["valid_from"]): (row["valid_to"], row["origin"])
        for row in rows(tmp_path, "quota_version")
        if row["user"] == "alice" and not row["client_default"]
    }
    assert versions == {
        ("producer_byte_rate", 1.0, begin): (end, "audit"),
        ("producer_byte_rate", 1024.0, end): (None, "audit"),
        ("request_percentage", 99.0, begin): (taken_at, "audit"),
        ("request_percentage", 12.5, taken_at): (None, "snapshot"),
        ("consumer_byte_rate", 5.0, begin): (taken_at, "audit"),
    }


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("nobody", "does not accept the token of --token-file"),
        ("mallory", "The principal of --token-file may not describe quotas"),
    ],
)
def test_a_token_that_is_not_good_enough_is_named(
    command: Command, service: RunningService, tmp_path: Path, token: str, sentence: str
):
    arguments = ["--server", service.url, "--token-file", token_file(tmp_path, token)]
    done = command("snapshot", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_service_that_cannot_be_reached_is_named(command: Command, tmp_path: Path):
    arguments = ["--token-file", token_file(tmp_path, "bob"), "--out", tmp_path / "out"]
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        done = command("snapshot", "--server", url, *arguments)
    assert done.returncode == 5
    assert f"{url} cannot be reached" in done.stderr
