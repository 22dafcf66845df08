"""What the service was asked over HTTP, folded into what held when."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.localdev.kafka import LocalKafka
from app.pipeline.run_records import URL_VARIABLE
from tests.pipeline.conftest import Command
from tests.testkit.kafka import unique
from tests.testkit.postgres import AuditDatabase
from tests.testkit.service import RunningService, running_service

P, C = "producer_byte_rate", "consumer_byte_rate"


def altered(service: RunningService, user: str, **values: float | None) -> dict[str, Any]:
    """Set each key to its value, remove it for null; return the service's answer."""
    ops = [
        {"key": key, "remove": True} if value is None else {"key": key, "value": value}
        for key, value in values.items()
    ]
    answer = service.alter({"entity": {"user": user}, "ops": ops})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert body["outcome"] == "applied"
    return body


def test_set_change_and_remove_become_intervals_that_meet(
    broker: LocalKafka,
    audit_database: AuditDatabase,
    tmp_path: Path,
    spark_command: Command,
    monkeypatch: pytest.MonkeyPatch,
):
    user, url = unique("user"), audit_database.service_url
    with running_service(tmp_path, broker.bootstrap_servers, url) as service:
        first = altered(service, user, **{P: 1024.0, C: 7.0})
        altered(service, user, **{P: 2048.0})
        refused = service.alter({"entity": {"user": user}, "ops": [{"key": P, "value": -1}]})
        altered(service, user, **{P: None})
    assert refused.status_code == 422
    monkeypatch.setenv(URL_VARIABLE, url)
    assert spark_command("history", "--out", tmp_path / "out").returncode == 0
    rows = pq.read_table(tmp_path / "out" / "quota_version").to_pylist()
    assert {row["cluster_id"] for row in rows} == {first["cluster_id"]}
    assert {(row["user"], row["client_id"], row["origin"]) for row in rows} == {(user, "", "audit")}
    rows.sort(key=lambda row: row["valid_from"])
    set_to, changed = (row for row in rows if row["key"] == P)
    assert [set_to["value"], changed["value"]] == [1024.0, 2048.0]
    assert set_to["valid_from"] < set_to["valid_to"] == changed["valid_from"]
    assert changed["valid_from"] < changed["valid_to"]
    assert set_to["audit_seq"] < changed["audit_seq"]
    assert set_to["alteration_id"] == first["alteration_id"]
    (unchanged,) = (row for row in rows if row["key"] == C)
    assert (unchanged["value"], unchanged["valid_from"]) == (7.0, set_to["valid_from"])
    assert unchanged["valid_to"] is None
