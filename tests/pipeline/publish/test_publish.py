from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.publish.postgres import publish
from app.pipeline.publish.runs import RUN_VARIABLE, recorded
from app.pipeline.tables import (
    BUCKET_MINUTE,
    DIM_BUCKET,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    Table,
)
from tests.pipeline.publish.results import (
    CLUSTER,
    MIDNIGHT,
    SAMPLE,
    bucket,
    day,
    incident,
    job_of,
    minute,
    written,
)
from tests.testkit.postgres import AuditDatabase


def rows_of(url: str, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row, options="-c timezone=UTC") as connection:
        query = sql.SQL("select * from {} order by 1, 2, 3").format(sql.Identifier(table))
        return connection.execute(query).fetchall()


def told(row: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in given}


def counts(url: str, tables: Sequence[Table] = tuple(SAMPLE)) -> list[int]:
    return [len(rows_of(url, table.name)) for table in tables]


def test_every_served_table_is_published_with_its_values(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    job = job_of("run", url)
    publish(job, written(tmp_path, SAMPLE))
    for table, given in SAMPLE.items():
        served = rows_of(url, table.name)
        assert len(served) == len(given)
        for row in given:
            assert row in [told(item, row) for item in served]
    assert job.counts["published"] == {
        "bucket_minute": 3,
        "dim_bucket": 1,
        "utilization_daily": 2,
        "throttle_incident": 1,
    }


def test_a_run_is_recorded_with_what_it_published(audit_database: AuditDatabase, tmp_path: Path):
    job = job_of("run", audit_database.service_url, input=["/data/in"])
    job.counts["rows_in"] = 17
    publish(job, written(tmp_path, SAMPLE))
    (run,) = rows_of(audit_database.service_url, "pipeline_run")
    assert (run["run_id"], run["job"], run["state"]) == (job.run_id, "run", "succeeded")
    assert (run["cluster_id"], run["rows_in"], run["rows_out"]) == (CLUSTER, 17, 7)
    assert run["data_through"] == MIDNIGHT + timedelta(minutes=4)
    assert run["coverage"] == 0.75
    assert run["options"] == {"input": ["/data/in"]}
    assert run["started_at"] <= run["ended_at"]
    assert set(run["published"]) == {table.name for table in SAMPLE}


def test_publishing_again_leaves_the_same_rows(audit_database: AuditDatabase, tmp_path: Path):
    url = audit_database.service_url
    for name in ("a", "b"):
        publish(job_of("run", url), written(tmp_path / name, SAMPLE))
    assert counts(url) == [3, 1, 2, 1]
    assert len(rows_of(url, "pipeline_run")) == 2


def test_a_day_is_replaced_and_other_days_and_clusters_stay(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    other = {
        BUCKET_MINUTE: [minute(1440), minute(0, cluster_id="lkc-2")],
        UTILIZATION_DAILY: [day(dt=MIDNIGHT.date() + timedelta(days=1)), day(cluster_id="lkc-2")],
        THROTTLE_INCIDENT: [incident("i-2", 1440), incident("i-1", 0, cluster_id="lkc-2")],
        DIM_BUCKET: [bucket(level=6), bucket(cluster_id="lkc-2")],
    }
    publish(job_of("run", url), written(tmp_path / "others", other))
    publish(job_of("run", url), written(tmp_path / "first", SAMPLE))
    assert counts(url) == [5, 3, 4, 3]
    less = {BUCKET_MINUTE: [minute(0, rate_max=7.0)]}
    publish(job_of("run", url), written(tmp_path / "again", less))
    assert counts(url) == [3, 3, 2, 2]
    assert [row["rate_max"] for row in rows_of(url, "bucket_minute") if row["rate_max"] == 7]


def test_each_job_publishes_its_own_tables_for_the_days_of_its_input(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    buckets = tmp_path / "buckets"
    publish(job_of("run", url), written(tmp_path / "all", SAMPLE))
    written(buckets, {BUCKET_MINUTE: [minute(0), minute(1440)]})
    options = {"input": [str(buckets)], "until": MIDNIGHT + timedelta(days=1)}
    publish(job_of("incidents", url, **options), written(tmp_path / "incidents", {}))
    assert counts(url) == [3, 1, 2, 0]
    publish(job_of("utilization", url, **options), written(tmp_path / "days", {}))
    assert counts(url) == [3, 1, 0, 0]
    run = rows_of(url, "pipeline_run")[-1]
    assert run["data_through"] == MIDNIGHT + timedelta(minutes=1)


def test_incidents_of_other_days_that_a_folder_keeps_are_published_once(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    kept = [incident("old", -1440), incident("new", 0)]
    publish(job_of("run", url), written(tmp_path / "a", {**SAMPLE, THROTTLE_INCIDENT: kept[:1]}))
    publish(job_of("run", url), written(tmp_path / "b", {**SAMPLE, THROTTLE_INCIDENT: kept}))
    served = rows_of(url, "throttle_incident")
    assert [row["incident_id"] for row in served] == ["new", "old"]


def test_when_a_bucket_was_seen_first_and_last_is_kept(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    early, late = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    for seen in (early, late):
        row = bucket(first_seen=seen, last_seen=seen)
        publish(job_of("resolve", url), written(tmp_path / f"{seen:%m}", {DIM_BUCKET: [row]}))
    (served,) = rows_of(url, "dim_bucket")
    assert (served["first_seen"], served["last_seen"]) == (early, late)


def test_names_are_published_as_they_are(audit_database: AuditDatabase, tmp_path: Path):
    names = ["", "<default>", "two\nlines", 'a"b,c\\.', "\\.", "é😀", "a\0b"]
    rows = [bucket(bucket_id=n, bucket_user=name, quota_user=None) for n, name in enumerate(names)]
    publish(job_of("resolve", audit_database.service_url), written(tmp_path, {DIM_BUCKET: rows}))
    served = rows_of(audit_database.service_url, "dim_bucket")
    assert [row["bucket_user"] for row in served] == [*names[:-1], "a\ufffdb"]
    assert {(row["bucket_client"], row["quota_user"]) for row in served} == {("", None)}


def test_numbers_are_published_bit_for_bit(audit_database: AuditDatabase, tmp_path: Path):
    numbers = [0.1, 1e-300, 2.0**63, float("inf"), float("nan"), None]
    rows = {UTILIZATION_DAILY: [day(bucket_id=n, limit=number) for n, number in enumerate(numbers)]}
    publish(job_of("utilization", audit_database.service_url), written(tmp_path, rows))
    served = sorted(
        rows_of(audit_database.service_url, "utilization_daily"), key=lambda row: row["bucket_id"]
    )
    assert repr([row["limit"] for row in served]) == repr(numbers)


def test_a_publication_that_fails_leaves_the_former_results(
    audit_database: AuditDatabase, tmp_path: Path
):
    url = audit_database.service_url
    publish(job_of("run", url), written(tmp_path / "first", SAMPLE))
    before = [rows_of(url, table.name) for table in SAMPLE]
    twice = {**SAMPLE, THROTTLE_INCIDENT: [incident("i", 0), incident("i", 1)]}
    with pytest.raises(InfrastructureError, match="Postgres: "):
        publish(job_of("run", url), written(tmp_path / "second", twice))
    assert [rows_of(url, table.name) for table in SAMPLE] == before
    failed = rows_of(url, "pipeline_run")[-1]
    assert failed["state"] == "failed"
    assert failed["error"].startswith("Postgres: ")
    publish(job_of("run", url), written(tmp_path / "third", SAMPLE))
    assert rows_of(url, "staged_bucket_minute") == []


def test_a_job_that_fails_before_it_publishes_is_recorded(audit_database: AuditDatabase):
    url = audit_database.service_url
    with pytest.raises(UsageError), recorded(job_of("resolve", url)):
        raise UsageError("--quotas is missing.")
    (run,) = rows_of(url, "pipeline_run")
    assert (run["state"], run["error"]) == ("failed", "--quotas is missing.")


def test_a_cancelled_run_of_the_queue_publishes_nothing(
    audit_database: AuditDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = audit_database.service_url
    monkeypatch.setenv(RUN_VARIABLE, "r-1")
    insert = (
        "insert into pipeline_run (run_id, job, state, started_at) "
        "values ('r-1', 'run', 'running', now())"
    )
    cancel = "update pipeline_run set state = 'cancelled', ended_at = now()"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(insert)
        job, run = job_of("run", url), written(tmp_path, SAMPLE)
        with recorded(job):
            connection.execute(cancel)
            with pytest.raises(InfrastructureError, match="cancelled"):
                publish(job, run)
    assert counts(url) == [0, 0, 0, 0]


def test_without_pg_nothing_is_published(tmp_path: Path):
    job = job_of("run", None)
    publish(job, written(tmp_path, SAMPLE))
    assert "published" not in job.counts


def test_the_address_is_that_of_the_environment_where_pg_has_no_value(
    audit_database: AuditDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = written(tmp_path, SAMPLE)
    monkeypatch.delenv("QUOTAS_DATABASE_URL", raising=False)
    with pytest.raises(UsageError, match="QUOTAS_DATABASE_URL"):
        publish(job_of("run", ""), run)
    monkeypatch.setenv("QUOTAS_DATABASE_URL", audit_database.service_url)
    publish(job_of("run", ""), run)
    assert counts(audit_database.service_url) == [3, 1, 2, 1]


def test_a_database_that_cannot_be_used_is_told(tmp_path: Path):
    run = written(tmp_path, SAMPLE)
    with pytest.raises(UsageError, match="--pg cannot be read"):
        publish(job_of("run", "nonsense"), run)
    with pytest.raises(InfrastructureError, match="Postgres: "):
        publish(job_of("run", "postgresql://quotas@127.0.0.1:1/quotas"), run)


def test_a_database_that_was_not_migrated_says_what_to_do(
    empty_database: AuditDatabase, tmp_path: Path
):
    with pytest.raises(InfrastructureError, match="kafka-quota-service migrate"):
        publish(job_of("run", empty_database.service_url), written(tmp_path, SAMPLE))
