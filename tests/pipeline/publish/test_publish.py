from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.lake import Lake
from app.pipeline.main import main
from app.pipeline.publishing import DETAILS_FOR_DAYS, publish, publish_advice, publish_results
from app.pipeline.run_records import URL_VARIABLE, database_of, record_run
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    DRIFT_FINDING,
    RECOMMENDATION,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
    Table,
)
from tests.pipeline.publish.results import (
    ADVICE,
    CLUSTER,
    DAY,
    MIDNIGHT,
    REACH,
    RUN,
    SAMPLE,
    WHATIF,
    bucket,
    day,
    hour,
    incident,
    job_of,
    minutes,
    publish_rows,
    stored_hour,
    twin,
)
from tests.testkit import bucket_worlds
from tests.testkit.postgres import AuditDatabase

TOMORROW = DAY + timedelta(days=1)


def rows_of(url: str, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row, options="-c timezone=UTC") as connection:
        query = sql.SQL("select * from {} order by 1, 2, 3").format(sql.Identifier(table))
        return connection.execute(query).fetchall()


def counts(url: str, tables: Sequence[Table] = tuple(SAMPLE)) -> list[int]:
    return [len(rows_of(url, table.name)) for table in tables]


def test_every_served_table_is_published_with_its_values(audit_database: AuditDatabase):
    url = audit_database.service_url
    job = publish_rows(url, SAMPLE)
    for table, written in SAMPLE.items():
        served = rows_of(url, table.name)
        assert len(served) == len(written)
        for row in written:
            assert row in [{name: item[name] for name in row} for item in served]
    assert job.counts["published"] == {
        "bucket_hour": 3,
        "dim_bucket": 1,
        "utilization_daily": 2,
        "throttle_incident": 1,
        "utilization_hist": 2,
    }


def test_a_run_is_recorded_with_what_it_published(audit_database: AuditDatabase):
    job = job_of("run", input=["/data/in"])
    job.counts["rows_in"] = 17
    publish_rows(audit_database.service_url, SAMPLE, job)
    (run,) = rows_of(audit_database.service_url, "pipeline_run")
    assert (run["run_id"], run["job"], run["state"]) == (job.run_id, "run", "succeeded")
    assert (run["cluster_id"], run["rows_in"], run["rows_out"]) == (CLUSTER, 17, 9)
    assert (run["data_through"], run["coverage"]) == (MIDNIGHT + timedelta(minutes=5), 0.75)
    assert run["options"] == {"input": ["/data/in"]}
    assert run["started_at"] <= run["ended_at"]
    assert set(run["published"]) == {table.name for table in SAMPLE}


def test_publishing_again_leaves_the_same_rows(audit_database: AuditDatabase):
    url = audit_database.service_url
    for _ in range(2):
        publish_rows(url, SAMPLE)
    assert counts(url) == [3, 1, 2, 1, 2]
    assert len(rows_of(url, "pipeline_run")) == 2


def test_a_day_is_replaced_and_other_days_and_clusters_stay(audit_database: AuditDatabase):
    url = audit_database.service_url
    other = {
        BUCKET_HOUR: [hour(24), hour(0, cluster_id="lkc-2")],
        UTILIZATION_DAILY: [day(dt=TOMORROW), day(cluster_id="lkc-2")],
        THROTTLE_INCIDENT: [incident("i-2", 1440), incident("i-1", 0, cluster_id="lkc-2")],
        DIM_BUCKET: [bucket(level=6), bucket(cluster_id="lkc-2")],
    }
    publish_rows(url, other, days=(DAY, TOMORROW))
    publish_rows(url, SAMPLE)
    assert counts(url) == [5, 3, 4, 3, 2]
    publish_rows(url, {BUCKET_HOUR: [hour(0, rate_max=7.0)]})
    assert counts(url) == [3, 3, 4, 3, 2]
    assert [row["rate_max"] for row in rows_of(url, "bucket_hour") if row["rate_max"] == 7]


def test_a_table_without_rows_ends_empty_for_the_days(audit_database: AuditDatabase):
    url = audit_database.service_url
    publish_rows(url, SAMPLE)
    publish_rows(url, {THROTTLE_INCIDENT: []}, job_of("incidents"))
    assert counts(url) == [3, 1, 2, 0, 2]
    publish_rows(
        url, {UTILIZATION_DAILY: [], UTILIZATION_HIST: [], BUCKET_HOUR: []}, job_of("utilization")
    )
    assert counts(url) == [0, 1, 0, 0, 0]


def test_hours_and_histograms_are_served_for_a_cluster_s_last_days_alone(
    audit_database: AuditDatabase,
):
    url = audit_database.service_url
    days = [DAY + timedelta(days=number) for number in range(DETAILS_FOR_DAYS + 2)]
    for number, each in enumerate(days):
        rows = {BUCKET_HOUR: [hour(24 * number)], UTILIZATION_HIST: [minutes(1, 0, dt=each)]}
        publish_rows(url, rows, days=(each,))
    other = {"cluster_id": "lkc-2"}
    publish_rows(url, {BUCKET_HOUR: [hour(0, **other)], UTILIZATION_HIST: [minutes(1, 0, **other)]})
    for table in ("bucket_hour", "utilization_hist"):
        served = [(row["cluster_id"], row["dt"]) for row in rows_of(url, table)]
        assert served == [*((CLUSTER, each) for each in days[2:]), ("lkc-2", DAY)]


def test_a_bucket_is_served_with_its_first_and_last_time(audit_database: AuditDatabase):
    url = audit_database.service_url
    early, late = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    for seen in (early, late):
        publish_rows(
            url, {DIM_BUCKET: [bucket(first_seen=seen, last_seen=seen)]}, job_of("resolve")
        )
    (served,) = rows_of(url, "dim_bucket")
    assert (served["first_seen"], served["last_seen"]) == (early, late)


def test_names_are_published_as_they_are(audit_database: AuditDatabase):
    names = ["", "<default>", "two\nlines", 'a"b,c\\.', "\\.", "é😀", "a\0b"]
    rows = [bucket(bucket_id=n, bucket_user=name, quota_user=None) for n, name in enumerate(names)]
    publish_rows(audit_database.service_url, {DIM_BUCKET: rows}, job_of("resolve"))
    served = rows_of(audit_database.service_url, "dim_bucket")
    assert [row["bucket_user"] for row in served] == [*names[:-1], "a\ufffdb"]
    assert {(row["bucket_client"], row["quota_user"]) for row in served} == {("", None)}


def test_numbers_are_published_bit_for_bit(audit_database: AuditDatabase):
    numbers = [0.1, 1e-300, 2.0**63, float("inf"), float("nan"), None]
    rows = {UTILIZATION_DAILY: [day(bucket_id=n, limit=number) for n, number in enumerate(numbers)]}
    publish_rows(audit_database.service_url, rows, job_of("utilization"))
    served = sorted(
        rows_of(audit_database.service_url, "utilization_daily"), key=lambda row: row["bucket_id"]
    )
    assert repr([row["limit"] for row in served]) == repr(numbers)


def test_a_publication_that_fails_leaves_the_former_results(audit_database: AuditDatabase):
    url = audit_database.service_url
    publish_rows(url, SAMPLE)
    before = [rows_of(url, table.name) for table in SAMPLE]
    twice = {**SAMPLE, THROTTLE_INCIDENT: [incident("i", 0), incident("i", 1)]}
    with pytest.raises(InfrastructureError, match="Postgres: "):
        publish_rows(url, twice)
    assert [rows_of(url, table.name) for table in SAMPLE] == before
    failed = rows_of(url, "pipeline_run")[-1]
    assert failed["state"] == "failed"
    assert failed["error"].startswith("Postgres: ")
    publish_rows(url, SAMPLE)


@pytest.fixture
def database(audit_database: AuditDatabase, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that --pg names without a value."""
    monkeypatch.setenv(URL_VARIABLE, audit_database.service_url)
    return audit_database.service_url


def test_a_job_that_fails_before_it_publishes_is_recorded(database: str):
    with pytest.raises(UsageError), record_run(job_of("resolve")):
        raise UsageError("--quotas is missing.")
    (run,) = rows_of(database, "pipeline_run")
    assert (run["state"], run["error"]) == ("failed", "--quotas is missing.")


def fail_after_publishing(url: str, error: BaseException) -> dict[str, Any]:
    """Fail as a run whose advice fails, and return the record."""

    def run() -> None:
        job = job_of("run")
        with record_run(job):
            publish_rows(url, SAMPLE, job)
            raise error

    with pytest.raises(type(error)):
        run()
    (found,) = rows_of(url, "pipeline_run")
    return found


def test_a_run_whose_advice_fails_has_failed_and_what_it_published_stays(database: str):
    run = fail_after_publishing(database, InfrastructureError("Spark failed."))
    assert (run["state"], run["error"]) == ("failed", "Spark failed.")
    assert set(run["published"]) == {table.name for table in SAMPLE}
    assert run["data_through"] == MIDNIGHT + timedelta(minutes=5)


def test_a_run_that_is_stopped_after_it_published_was_cancelled(database: str):
    run = fail_after_publishing(database, KeyboardInterrupt())
    assert (run["state"], run["error"]) == ("cancelled", "stopped by a signal")


def test_a_run_whose_process_died_has_failed_once_the_next_begins(database: str):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into pipeline_run (run_id, job, state, started_at) "
            "values ('died', 'run', 'running', now())"
        )
    with record_run(job_of("run")), record_run(job_of("resolve")):
        states = {run["job"]: run["state"] for run in rows_of(database, "pipeline_run")[1:]}
        assert states == {"run": "running", "resolve": "running"}
    died, *_ = rows_of(database, "pipeline_run")
    assert (died["state"], died["error"]) == ("failed", "The process that ran it died.")


@pytest.mark.small
def test_what_a_job_wrote_is_published_with_its_reach(
    database: str, spark: SparkSession, tmp_path: Path
):
    lake = Lake(spark, str(tmp_path))
    histogram = {"hist_bin": [-(2**31), 458], "hist_n": [2, 1]}
    rows = {
        **SAMPLE,
        BUCKET_HOUR: list(map(stored_hour, [hour(0), hour(24)])),
        UTILIZATION_DAILY: [day(**histogram), day(broker_id=1)],
        THROTTLE_INCIDENT: [incident("i-1", 0, dt=DAY)],
        DIM_BUCKET: [bucket() | {"dt": DAY, "hour": number} for number in (0, 1)],
    }
    for table, each in rows.items():
        if table is not UTILIZATION_HIST:
            lake.write(bucket_worlds.frame(spark, table, map(dict, each)), table)
    job = job_of("run", out=str(tmp_path), catalog=None)
    job.session = spark
    publish(job, [{"cluster_id": CLUSTER, "dt": f"{DAY}", "hour": "0"}])
    assert counts(database) == [1, 1, 2, 1, 2]
    (run,) = rows_of(database, "pipeline_run")
    assert (run["data_through"], run["coverage"]) == (MIDNIGHT + timedelta(minutes=4), 0.75)
    assert set(run["published"]) == {table.name for table in SAMPLE}, "minutes stay in the lake"
    with psycopg.connect(database) as connection:
        table = connection.execute("select to_regclass('bucket_minute')").fetchone()
    assert table == (None,)


@pytest.mark.small
def test_advice_is_published_by_cluster_and_what_if_by_its_run(
    database: str, spark: SparkSession, tmp_path: Path
):
    lake = Lake(spark, str(tmp_path))
    advice = {RECOMMENDATION: ADVICE[RECOMMENDATION], DRIFT_FINDING: ADVICE[DRIFT_FINDING]}
    of_runs = {
        table: [{**row, "run_id": run_id} for row in each for run_id in (RUN, "another")]
        for table, each in WHATIF.items()
    }
    for table, each in {**advice, **of_runs}.items():
        lake.write(bucket_worlds.frame(spark, table, map(dict, each)), table)
    cluster = {"cluster_id": CLUSTER}
    for name, tables, replaced in (
        ("rightsize", list(advice), cluster),
        ("whatif", list(of_runs), {**cluster, "run_id": RUN}),
    ):
        job = job_of(name, out=str(tmp_path), catalog=None)
        job.session = spark
        publish_advice(job, tables, [replaced], REACH)
        found = {table.name: len(ADVICE.get(table) or WHATIF[table]) for table in tables}
        assert job.counts["published"] == found
        assert counts(database, tables) == list(found.values())


def test_what_is_published_is_read_while_no_other_run_publishes(database: str):
    """So the last to publish has what all others have."""
    free: list[bool] = []

    def rows() -> Iterator[pa.Table]:
        with psycopg.connect(database) as other:
            asked = "select pg_try_advisory_xact_lock(hashtext('quota-pipeline publish'))"
            free.append(other.execute(asked).fetchall()[0][0])
        yield twin(UTILIZATION_DAILY, [day()])

    replaced = [{"cluster_id": CLUSTER, "dt": f"{DAY}"}]
    publish_results(job_of("run"), {UTILIZATION_DAILY: rows()}, replaced, REACH)
    assert free == [False]
    assert counts(database, [UTILIZATION_DAILY]) == [1]


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_an_address_that_is_wrong_is_found_before_spark_is_started(
    options: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folders = ("--input", f"{tmp_path}", "--out", f"{tmp_path}")
    assert main(["utilization", *folders, "--pg", "postgresql://u:secret@h/d", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--pg takes a file that holds the address" in line
    assert "secret" not in line


def test_without_pg_nothing_is_published(spark: SparkSession):
    job = job_of("run", pg=None)
    publish(job, [])
    assert "published" not in job.counts


def test_the_address_is_that_of_a_file_or_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.setenv("QUOTAS_DATABASE_URL", "postgresql://service")
    with pytest.raises(UsageError, match=URL_VARIABLE):
        database_of(job_of("run"))
    monkeypatch.setenv(URL_VARIABLE, "postgresql+psycopg://environment")
    assert database_of(job_of("run")) == "postgresql://environment"
    file = tmp_path / "url"
    file.write_text("postgresql://file\n")
    assert database_of(job_of("run", pg=str(file))) == "postgresql://file"
    with pytest.raises(UsageError, match="takes a file that holds"):
        database_of(job_of("run", pg="postgresql://a:password@b/c"))


def test_a_database_that_cannot_be_used_is_named():
    with pytest.raises(UsageError, match="address is not postgresql://"):
        publish_rows("nonsense", SAMPLE)
    with pytest.raises(InfrastructureError, match="Postgres: "):
        publish_rows("postgresql://quotas@127.0.0.1:1/quotas", SAMPLE)


def test_a_database_that_was_not_migrated_says_what_to_do(empty_database: AuditDatabase):
    with pytest.raises(InfrastructureError, match="kafka-quota-service migrate"):
        publish_rows(empty_database.service_url, SAMPLE)
