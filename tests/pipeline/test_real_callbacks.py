"""Brokers with a quota callback, from their metrics to incidents: the callback's own buckets."""

import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from app.domain.callbacks.strimzi_static import STRIMZI_STATIC
from app.localdev.jars import STRIMZI_QUOTAS_LOCK, jars_of
from app.localdev.postgres import LocalPostgres
from app.localdev.traffic import TrafficClient
from tests.pipeline.real_broker import collecting, pipeline
from tests.testkit.callbacks import (
    Plugin,
    broker_with,
    built_callbacks,
    callback_file,
    traffic,
)
from tests.testkit.postgres import migrated_database
from tests.testkit.service import running_service

pytestmark = pytest.mark.long

KEY = "producer_byte_rate"
LIMIT = 100_000
LOAD_S, INTERVAL_S = 130, 5
CLIENTS = [TrafficClient(user, "etl", 300_000) for user in ("alice", "bob")]


def incidents(
    plugin: Plugin, stored: dict[str, int], callback: Path, postgres: LocalPostgres
) -> list[tuple[str, str, float]]:
    """Let alice and bob write under a callback; return each bucket and limit of an incident."""
    folder = callback.parent
    _, url = migrated_database(postgres, folder.name)
    with (
        broker_with(plugin, folder / "broker") as kafka,
        running_service(
            folder, kafka.bootstrap_servers, url, callback_file=str(callback)
        ) as service,
    ):
        changes = [
            {"entity": {"user": user}, "ops": [{"key": KEY, "value": value}]}
            for user, value in stored.items()
        ]
        assert service.alter(*changes).status_code == 200
        with collecting(kafka, folder / "raw", INTERVAL_S), traffic(kafka, *CLIENTS):
            # What takes time here is the measurement itself.
            threading.Event().wait(LOAD_S)
        (folder / "token").write_text("alice")
        out = folder / "out"
        server = ("--server", service.url, "--token-file", folder / "token")
        pipeline("snapshot", *server, "--out", out)
    inputs = ("--format", "collect", "--input", folder / "raw", "--quotas", out)
    pipeline("run", *inputs, "--callback", callback, "--out", out)
    buckets = {row["bucket_id"]: row for row in rows(out, "dim_bucket")}
    limits = {row["bucket_id"]: row["limit"] for row in rows(out, "series_limit")}
    return sorted(
        (bucket["bucket_user"], bucket["bucket_client"], limits[bucket["bucket_id"]])
        for row in rows(out, "throttle_incident")
        for bucket in (buckets[row["bucket_id"]],)
    )


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / table).to_pylist()
    return found


def test_the_bucket_of_a_static_limit_has_the_incident(postgres: LocalPostgres, tmp_path: Path):
    static = "client.quota.callback.static"
    properties = {
        f"{static}.produce": str(LIMIT),
        f"{static}.kafka.admin.bootstrap.servers": "127.0.0.1:1",
    }
    plugin = Plugin(STRIMZI_STATIC, tuple(jars_of(STRIMZI_QUOTAS_LOCK)), properties)
    callback = callback_file(tmp_path, STRIMZI_STATIC, "strimzi-static", {"produce": LIMIT})
    found = incidents(plugin, {"alice": 1000}, callback, postgres)
    assert found == [("quota.type:PRODUCE", "", LIMIT)]


def test_the_bucket_of_a_group_has_the_incident(postgres: LocalPostgres, tmp_path: Path):
    (tmp_path / "jar").mkdir()
    members = tmp_path / "groups.properties"
    members.write_text("user.alice=ops\nuser.bob=ops\n")
    (tmp_path / "groups.yaml").write_text(yaml.safe_dump({"ops": {"users": ["alice", "bob"]}}))
    name = "GroupQuotaCallback"
    properties = {"client.quota.callback.groups.file": str(members)}
    plugin = Plugin(name, (built_callbacks(tmp_path / "jar"),), properties)
    callback = callback_file(tmp_path, name, "groups", {"groups_file": "groups.yaml"})
    found = incidents(plugin, {"group:ops": LIMIT, "alice": LIMIT * 5}, callback, postgres)
    assert found == [("group:ops", "", LIMIT)]
