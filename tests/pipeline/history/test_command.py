"""The command on a real Postgres, with rows that the journal and a real service wrote."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from app.domain.alterations import AlterationResult, Op, Outcome, Values
from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka import LocalKafka
from app.pipeline.run_records import URL_VARIABLE
from app.pipeline.tables import QUOTA_SNAPSHOT
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.ports.alterations import Alteration, Conclusion
from app.service.ports.audit_log import (
    Drift,
    Recovered,
)
from tests.integration.http.service_calls import C, P, change
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import publish
from tests.testkit.kafka import unique
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import (
    CLUSTER,
    AuditDatabase,
    audit_change,
    audit_request,
    intent_of,
    record_conclusion,
    record_intent,
)
from tests.testkit.service import running_service

Fold = Callable[..., dict[str, Any]]


@pytest.fixture
async def database(audit_database: AuditDatabase) -> AsyncIterator[Database]:
    connections = Database(audit_database.service_url, patience=PATIENT)
    yield connections
    await connections.close()


async def altered(
    database: Database, user: str, before: Values, after: Values, outcome: Outcome = Outcome.APPLIED
) -> tuple[Alteration, datetime]:
    """Write an alteration that sets or removes ``producer_byte_rate``, and its outcome."""
    value = after.get(P)
    op = Op(P, remove=True) if value is None else Op(P, Decimal(value))
    request = audit_request(audit_change(0, {"user": user}, before, (op,)))
    journal = PostgresJournal(database)
    await record_intent(journal, intent_of(replace(request, broker_id=1)))
    entity = request.changes[0].entity
    final = after if outcome is Outcome.APPLIED else None
    result = AlterationResult(entity, outcome, changed=True, before=before, after=final)
    sent = (datetime.now(UTC), "sent", "handed to broker 1")
    await record_conclusion(journal, Conclusion(request.alteration_id, {0: result}, [sent]))
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    return request, record.at


@pytest.fixture
def fold(
    audit_database: AuditDatabase, spark_command: Command, monkeypatch: pytest.MonkeyPatch
) -> Fold:
    """Run the command on the database of the test; return its report."""
    monkeypatch.setenv(URL_VARIABLE, audit_database.service_url)

    def run(out: Path, *more: str | Path) -> dict[str, Any]:
        done = spark_command("history", "--out", out, "--json", *more)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def seq(request: Alteration) -> int:
    return UUID(request.alteration_id).int >> 65


def stored(out: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(out / "quota_version").to_pylist()
    names = ("user", "key", "value", "valid_from", "valid_to", "origin", "audit_seq")
    return sorted(tuple(row[name] for name in names) for row in table)


@pytest.mark.small
async def test_the_log_becomes_versions(database: Database, fold: Fold, tmp_path: Path):
    request, first = await altered(database, "alice", {}, {P: 1024.0})
    await altered(database, "alice", {P: 1024.0}, {P: 9.0}, Outcome.REFUSED)
    changed, second = await altered(database, "alice", {P: 1024.0}, {P: float(2**63)})
    _, removed = await altered(database, "alice", {P: float(2**63)}, {})
    drift = Drift(ClientQuotaEntity.of({"user": "bob"}), {P: 1.0}, {P: 2.5}, datetime.now(UTC), 0)
    await PostgresDriftJournal(database).record_drift(CLUSTER, [drift])
    report = fold(tmp_path)
    alice, bob = stored(tmp_path)[:2], stored(tmp_path)[2:]
    assert alice == [
        ("alice", P, 1024.0, first, second, "audit", seq(request)),
        ("alice", P, float(2**63), second, removed, "audit", seq(changed)),
    ]
    assert [(row[2], row[5]) for row in bob] == [(1.0, "inferred"), (2.5, "audit")]
    assert bob[0][6] is None
    assert bob[1][6] > seq(changed)
    assert (report["rows_in"], report["findings"]) == (5, 0)
    # What was refused was made later, so that nothing is left of it.
    assert report["rows_out"] == {"quota_version": 4, "quota_conflict": 0, "quota_failed": 0}


async def test_what_recovery_found_counts(database: Database, fold: Fold, tmp_path: Path):
    verdicts = {Outcome.APPLIED: 7.0, Outcome.OBSERVED_OTHER: 8.0, Outcome.NOT_APPLIED: 5.0}
    sent = {}
    for verdict in verdicts:
        await altered(database, verdict.value, {}, {P: 5.0})
        sent[verdict] = await altered(database, verdict.value, {P: 5.0}, {P: 7.0}, Outcome.UNKNOWN)
    unknown = fold(tmp_path)["run_id"]
    recovery = PostgresRecovery(database)
    assert len(await recovery.claim_open(CLUSTER, "me", limit=10)) == len(sent)
    for verdict, (request, _) in sent.items():
        entity, after = request.changes[0].entity, {P: verdicts[verdict]}
        result = AlterationResult(entity, verdict, changed=True, before={P: 5.0}, after=after)
        found = Recovered(request.alteration_id, 0, result, final=True, evidence={})
        await recovery.record_recovery([found])
    concluded = fold(tmp_path)["run_id"]
    assert concluded != unknown
    assert fold(tmp_path)["run_id"] == concluded
    for verdict, (_, at) in sent.items():
        versions = [row for row in stored(tmp_path) if row[0] == verdict.value]
        last = max(versions, key=lambda row: row[3])
        assert (last[2], last[4]) == (verdicts[verdict], None)
        assert (last[3] == at) is (verdict is not Outcome.NOT_APPLIED)


async def test_a_snapshot_that_the_log_does_not_explain_is_a_finding(
    database: Database, fold: Fold, tmp_path: Path
):
    await altered(database, "alice", {}, {P: 5.0})
    taken = datetime(2099, 1, 1, tzinfo=UTC)
    row = {"cluster_id": CLUSTER, "dt": taken.date(), "snapshot_id": "s", "taken_at": taken}
    row |= {"user": "alice"}
    row |= {"user_default": False, "client_id": "", "client_default": False, "key": P, "value": 6.0}
    options = ("--input", publish(tmp_path / "seen", {QUOTA_SNAPSHOT: [row]}), "--cluster", CLUSTER)
    report = fold(tmp_path / "out", *options)
    assert report["findings"] == 1
    assert report["conflicts"][0]["conflict"] == f"a snapshot shows {P}=6, the log {P}=5"
    assert stored(tmp_path / "out")[-1][2:] == (6.0, taken, None, "snapshot", None)
    [conflict] = pq.read_table(tmp_path / "out" / "quota_conflict").to_pylist()
    assert (conflict["user"], conflict["at"]) == ("alice", taken)
    assert conflict["conflict"] == report["conflicts"][0]["conflict"]


def test_a_database_without_a_log_is_named(
    empty_database: AuditDatabase,
    tmp_path: Path,
    spark_command: Command,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(URL_VARIABLE, empty_database.owner_url)
    done = spark_command("history", "--out", tmp_path)
    assert done.returncode == 5
    assert "kafka-quota-service migrate" in done.stderr


@pytest.mark.small
def test_missing_options_are_named(
    tmp_path: Path, spark_command: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    done = spark_command("history", "--out", tmp_path)
    assert done.returncode == 2
    assert f"Set {URL_VARIABLE}" in done.stderr
    monkeypatch.setenv(URL_VARIABLE, "postgresql://x/y")
    done = spark_command("history", "--out", tmp_path, "--input", tmp_path)
    assert done.returncode == 2
    assert "There is no table quota_snapshot in" in done.stderr


def test_set_change_and_remove_become_intervals_that_meet(
    broker: LocalKafka,
    audit_database: AuditDatabase,
    tmp_path: Path,
    spark_command: Command,
    monkeypatch: pytest.MonkeyPatch,
):
    user, url = unique("user"), audit_database.service_url
    with running_service(tmp_path, broker.bootstrap_servers, url) as service:
        changes = ({P: 1024.0, C: 7.0}, {P: 2048.0}, {P: -1.0}, {P: None})
        answers = [service.alter(change({"user": user}, values)) for values in changes]
    assert [answer.status_code for answer in answers] == [200, 200, 422, 200]
    first = answers[0].json()
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
