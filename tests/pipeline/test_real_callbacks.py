"""Brokers with a quota callback, from their metrics to incidents: the callback's own buckets."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
import yaml

from app.domain.callbacks.strimzi_static import STRIMZI_STATIC
from app.localdev.jars import STRIMZI_QUOTAS_LOCK, jars_of
from app.localdev.kafka import LocalKafka
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


class Seen(NamedTuple):
    """Buckets that are limited, each with its user, its client-id and its limit.

    Attributes:
        top: Those that the command lists while they are used.
        incidents: Those that had an incident.
    """

    top: list[tuple[str, str, float]]
    incidents: list[tuple[str, str, float]]


def observe(
    plugin: Plugin, stored: dict[str, int], callback: Path, postgres: LocalPostgres
) -> Seen:
    """Let alice and bob write under a callback; return what is limited."""
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
            server = ("--server", service.url, "--token-file", folder / "token")
            listed = top(kafka, *map(str, server))
        out = folder / "out"
        pipeline("snapshot", *server, "--out", out)
    inputs = ("--format", "collect", "--input", folder / "raw", "--quotas", out)
    pipeline("run", *inputs, "--callback", callback, "--out", out)
    buckets = {row["bucket_id"]: row for row in rows(out, "dim_bucket")}
    limits = {row["bucket_id"]: row["limit"] for row in rows(out, "series_limit")}
    found = [buckets[row["bucket_id"]] for row in rows(out, "throttle_incident")]
    names = ("bucket_user", "bucket_client")
    return Seen(
        listed,
        sorted((*(each[name] for name in names), limits[each["bucket_id"]]) for each in found),
    )


def top(kafka: LocalKafka, *server: str) -> list[tuple[str, str, float]]:
    """Return the buckets that may produce no more than so much, as the command lists them."""
    command = [sys.executable, "-m", "app.client.cli", "top", *server, "--output", "json"]
    endpoint = ("--endpoint", f"1={kafka.metrics_url}")
    done = subprocess.run([*command, *endpoint], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [
        (row["user"], row["client_id"], row["limit"])
        for row in json.loads(done.stdout)["rows"]
        if row["key"] == KEY
    ]


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
    limited = [("quota.type:PRODUCE", "", float(LIMIT))]
    assert observe(plugin, {"alice": 1000}, callback, postgres) == Seen(limited, limited)


def test_the_bucket_of_a_group_has_the_incident(postgres: LocalPostgres, tmp_path: Path):
    (tmp_path / "jar").mkdir()
    members = tmp_path / "groups.properties"
    members.write_text("user.alice=ops\nuser.bob=ops\n")
    (tmp_path / "groups.yaml").write_text(yaml.safe_dump({"ops": {"users": ["alice", "bob"]}}))
    name = "GroupQuotaCallback"
    properties = {"client.quota.callback.groups.file": str(members)}
    plugin = Plugin(name, (built_callbacks(tmp_path / "jar"),), properties)
    callback = callback_file(tmp_path, name, "groups", {"groups_file": "groups.yaml"})
    stored = {"group:ops": LIMIT, "alice": LIMIT * 5}
    limited = [("group:ops", "", float(LIMIT))]
    assert observe(plugin, stored, callback, postgres) == Seen(limited, limited)
