"""``quota-pipeline whatif``: on small worlds whose answers are worked out by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from app.pipeline.tables import (
    QUOTA_VERSION,
    RECOMMENDATION,
    WHATIF_ENTITY,
    WHATIF_RUN,
    WHATIF_TIMELINE,
    Table,
)
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import (
    DAY,
    Row,
    at,
    facts_of_observations,
    observation,
    publish,
    read_arrow,
)
from tests.testkit.postgres import AuditDatabase

P = "producer_byte_rate"


def quota(value: float, key: str = P, **names: str | None) -> Row:
    """Return a row of ``quota_version``; null is a default."""
    entity = {
        "user": names.get("user") or "",
        "user_default": names.get("user", "") is None,
        "client_id": names.get("client_id") or "",
        "client_default": names.get("client_id", "") is None,
    }
    held = {"value": value, "valid_from": DAY, "valid_to": None, "origin": "snapshot"}
    return {"cluster_id": "c1", "key": key, **entity, **held}


def seen(number: int, user: str, client_id: str, rate: float, **columns: Any) -> Row:
    return observation(number, user, client_id, rate, **{"key": P, **columns})


def body(*alterations: tuple[Mapping[str, str | None], Mapping[str, float | None]]) -> str:
    """Return a body of ``POST /quotas/alterations``."""
    listed = [
        {
            "entity": entity,
            "ops": [
                {"key": key, "remove": True} if value is None else {"key": key, "value": value}
                for key, value in values.items()
            ],
        }
        for entity, values in alterations
    ]
    return json.dumps({"alterations": listed})


QUOTAS = [
    quota(100.0, user="alice"),
    quota(50.0, user="bob", client_id=None),
    quota(40.0, user="carol"),
    quota(30.0, user="carol", client_id="etl"),
    quota(100.0, user="open"),
    quota(100.0, user="frank"),
    quota(5.0, "controller_mutation_rate", user="dora"),
]
MINUTES = [
    # Of alice two clients, twice 60 in minute 1: over 100 together.
    *(seen(n, "alice", name, 60.0 if n == 1 else 10.0) for n in range(4) for name in ("a", "b")),
    # Of carol etl, and another one; of bob one client, throttled.
    *(seen(n, "carol", name, 20.0) for n in range(4) for name in ("etl", "web")),
    *(seen(n, "bob", "x", 50.0, throttle_ms_max=5.0) for n in range(4)),
    # The sums of all clients of a user.
    *(seen(n, "open", "", 60.0, grain="bucket") for n in range(4)),
    *(seen(n, "frank", "", 60.0, grain="bucket") for n in range(4)),
    *(seen(n, "gus", "", 60.0, grain="bucket") for n in range(4)),
    # Bursts: the average is far below the maximum.
    *(seen(n, "gina", "burst", 150.0, rate_avg=50.0) for n in range(2)),
    *(seen(n, "dora", "admin", 20.0, key="controller_mutation_rate") for n in range(2)),
]
PROPOSED = body(
    ({"user": "alice"}, {P: 60}),
    ({"user": "carol", "client-id": "etl"}, {P: None}),
    ({"user": "bob", "client-id": None}, {P: 100}),
    ({"user": "open", "client-id": "app1"}, {P: 10}),
    ({"user": "frank"}, {P: 30}),
    ({"user": "gus", "client-id": None}, {P: 10}),
    ({"user": "gina"}, {P: 75}),
    ({"user": "dora"}, {"controller_mutation_rate": 10}),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = facts_of_observations(MINUTES)
    return publish(tmp_path_factory.mktemp("lake"), {**facts, QUOTA_VERSION: QUOTAS})


def asked(command: Command, lake: Path, out: Path, proposal: str, *options: str) -> dict[str, Any]:
    """Run the job, and return its report."""
    file = out.parent / f"{out.name}.json"
    file.write_text(proposal, encoding="utf-8")
    done = command(
        *("whatif", "--json", "--input", lake, "--quotas", lake, "--alterations", file),
        *("--out", out, *options),
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def rows_of(out: Path, table: Table) -> list[Row]:
    return read_arrow(out, table).to_pylist()


def by_bucket(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    return {(row["bucket_user"], row["bucket_client"]): row for row in rows}


@pytest.mark.small
def test_what_is_proposed_is_run_over_the_history(
    spark_command: Command, lake: Path, tmp_path: Path
):
    plot = tmp_path / "pictures"
    report = asked(spark_command, lake, tmp_path / "out", PROPOSED, "--plot", str(plot))
    found = by_bucket(rows_of(tmp_path / "out", WHATIF_ENTITY))
    assert sorted(found) == [
        ("alice", ""),
        ("bob", "x"),
        ("carol", ""),
        ("carol", "etl"),
        ("dora", ""),
        ("frank", ""),
        ("gina", ""),
        ("gus", ""),
        ("open", ""),
    ]
    assert {name: row["fidelity"] for name, row in found.items() if row["fidelity"] != "exact"} == {
        ("frank", ""): "bucket",
        ("gus", ""): "indeterminate",
        ("open", ""): "indeterminate",
    }

    # 120 for a minute at 60: 3,600 wait, throttled for 55 s of it (a burst has 5 s of the limit,
    # which is 5 s here), and drain with 40 a second in the next minutes.
    alice = found["alice", ""]
    assert (alice["limit_now"], alice["limit_new"], alice["level_new"]) == (100.0, 60.0, 3)
    assert (alice["throttled_s_now"], alice["minutes_throttled_now"]) == (40.0 + 15.0, 2)
    assert [alice[f"throttled_s_new{name}"] for name in ("_low", "", "_high")] == [
        50.0 + 90.0,
        55.0 + 90.0,
        60.0 + 90.0,
    ]
    assert (alice["deferred_bytes_max"], alice["max_delay_s"]) == (3600, 60.0)
    assert (alice["quota_user"], alice["quota_client_default"]) == ("alice", False)
    assert alice["minutes"] == 4

    # etl comes back to the others of carol: 40 a second are at the limit.
    carol, etl = found["carol", ""], found["carol", "etl"]
    assert (carol["limit_now"], carol["limit_new"], carol["throttled_s_new"]) == (40.0, 40.0, 0.0)
    assert (etl["limit_now"], etl["limit_new"]) == (30.0, 40.0)
    assert (etl["throttled_s_now"], etl["throttled_s_new"]) == (0.0, None)

    bob = found["bob", "x"]
    assert (bob["censored"], bob["censored_minutes"], bob["level_new"]) == (True, 4, 2)
    assert (alice["censored"], alice["censored_minutes"]) == (True, 1)

    # Each of gus's clients would get a limit of its own.
    gus = found["gus", ""]
    assert (gus["limit_now"], gus["limit_new"], gus["throttled_s_new"]) == (None, None, None)
    # A client of open would get a limit of its own, and nobody knows how much of this was its.
    opened = found["open", ""]
    assert (opened["limit_now"], opened["throttled_s_now"]) == (100.0, 0.0)
    assert (opened["limit_new"], opened["throttled_s_new"], opened["max_delay_s"]) == (None,) * 3
    assert (opened["deferred_bytes_max"], gus["deferred_bytes_max"]) == (None, None)
    # All of frank's clients stay together, so that their sum is enough.
    assert found["frank", ""]["throttled_s_new"] == 55.0 + 3 * 60.0

    # 20 s at twice the limit: 1,500 wait, and drain in 20 s.
    gina = found["gina", ""]
    assert (gina["level_now"], gina["limit_now"], gina["throttled_s_now"]) == (0, None, 0.0)
    assert gina["throttled_s_new"] == 2 * (15.0 + 20.0)

    # 110 tokens last for 11 s at 10 over the limit; then 10 a second are refused.
    dora = found["dora", ""]
    assert (dora["refused"], dora["max_delay_s"], dora["deferred_bytes_max"]) == (
        490.0 + 600.0,
        None,
        None,
    )

    (run,) = rows_of(tmp_path / "out", WHATIF_RUN)
    assert (run["data_from"], run["data_through"]) == (at(0), at(4))
    assert run["run_id"] == report["run_id"]
    assert json.loads(run["alterations"]) == json.loads(PROPOSED)
    assert (run["buckets"], run["indeterminate"], run["censored"]) == (9, 2, 3)
    minutes = rows_of(tmp_path / "out", WHATIF_TIMELINE)
    of_alice = [row for row in minutes if row["bucket_id"] == alice["bucket_id"]]
    assert [row["waiting"] for row in of_alice] == [0.0, 3600.0, 1200.0, 0.0]
    assert [row["throttled_s_new"] for row in of_alice] == [0.0, 55.0, 60.0, 30.0]
    assert (plot / "whatif_timeline.png").read_bytes().startswith(b"\x89PNG")
    drawn = (plot / "whatif_timeline.csv").read_text(encoding="utf-8").splitlines()
    assert len(drawn) == 1 + report["drawn"]["whatif_timeline"]


def test_partitions_and_the_order_of_rows_change_nothing(
    spark_command: Command,
    spark: SparkSession,
    lake: Path,
    tmp_path: Path,
):
    other = publish(
        tmp_path / "lake", {**facts_of_observations(MINUTES[::-1]), QUOTA_VERSION: QUOTAS[::-1]}
    )
    results = []
    for folder, partitions in ((lake, 2), (other, 16)):
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        try:
            # Of two lakes with the same rows: only then Spark reads them.
            more = ("--input", str(lake if folder is other else other))
            asked(spark_command, folder, tmp_path / f"out{partitions}", PROPOSED, *more)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", 2)
        read = {
            table.name: [
                {name: value for name, value in row.items() if name != "run_id"}
                for row in rows_of(tmp_path / f"out{partitions}", table)
            ]
            for table in (WHATIF_RUN, WHATIF_ENTITY, WHATIF_TIMELINE)
        }
        results.append(read)
    assert results[0] == results[1]


def test_what_spark_reads_is_what_is_read_without_it(
    spark_command: Command, lake: Path, tmp_path: Path
):
    """Of two lakes Spark reads the minutes, of one on this machine the job itself does."""
    facts = facts_of_observations(MINUTES)
    copy = publish(tmp_path / "copy", {**facts, QUOTA_VERSION: QUOTAS})
    found = []
    for name, more in (("here", ()), ("spark", ("--input", str(copy)))):
        out = tmp_path / name
        asked(spark_command, lake, out, PROPOSED, *more)
        tables = [rows_of(out, table) for table in (WHATIF_ENTITY, WHATIF_TIMELINE)]
        found.append([[{**row, "run_id": ""} for row in rows] for rows in tables])
    assert found[0] == found[1]
    assert all(found[0])


def test_a_more_specific_quota_changes_no_other_bucket(
    spark_command: Command, lake: Path, tmp_path: Path
):
    first = body(({"user": "alice"}, {P: 60}), ({"user": "gina"}, {P: 75}))
    more = body(
        ({"user": "alice"}, {P: 60}),
        ({"user": "gina"}, {P: 75}),
        ({"user": "alice", "client-id": "a"}, {P: 5}),
    )
    asked(spark_command, lake, tmp_path / "first", first)
    asked(spark_command, lake, tmp_path / "more", more)
    of_first = by_bucket(rows_of(tmp_path / "first", WHATIF_ENTITY))
    of_more = by_bucket(rows_of(tmp_path / "more", WHATIF_ENTITY))
    assert of_first["gina", ""] | {"run_id": ""} == of_more["gina", ""] | {"run_id": ""}
    # What alice's other client has alone is under her limit now.
    assert of_more["alice", ""]["throttled_s_new"] == 0.0
    own = of_more["alice", "a"]
    assert (own["limit_now"], own["limit_new"], own["throttled_s_now"]) == (100.0, 5.0, None)


def test_recommendations_are_taken_instead_of_a_file(
    spark_command: Command, lake: Path, tmp_path: Path
):
    bodies = [body(({"user": "alice"}, {P: 60})), body(({"user": "gina"}, {P: 75})), None]
    rows = [
        {"cluster_id": "c1", "key": P, "bucket_id": number, "body": each}
        for number, each in enumerate(bodies)
    ]
    advice = publish(tmp_path / "advice", {RECOMMENDATION: rows})
    done = spark_command(
        *("whatif", "--input", lake, "--quotas", lake, "--recommendations", advice),
        *("--out", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    found = by_bucket(rows_of(tmp_path / "out", WHATIF_ENTITY))
    assert {name: row["limit_new"] for name, row in found.items()} == {
        ("alice", ""): 60.0,
        ("gina", ""): 75.0,
    }
    assert "Buckets on brokers throttled under the new quotas: 2, now 1" in done.stdout
    pictures = tmp_path / "pictures"
    drawn = spark_command("plot", "--input", tmp_path / "out", "--out", pictures)
    assert drawn.returncode == 0, drawn.stderr
    assert sorted(file.name for file in pictures.iterdir()) == [
        "whatif_timeline.csv",
        "whatif_timeline.png",
    ]


def test_answers_are_published_with_their_values(
    spark_command: Command, lake: Path, tmp_path: Path, audit_database: AuditDatabase
):
    file = tmp_path / "database"
    file.write_text(audit_database.service_url, encoding="utf-8")
    proposal = body(({"user": "alice"}, {P: 60}), ({"user": "open", "client-id": "x"}, {P: 10}))
    report = asked(spark_command, lake, tmp_path / "out", proposal, "--pg", str(file))
    assert report["published"] == {"whatif_run": 1, "whatif_entity": 2, "whatif_timeline": 4}
    with psycopg.connect(audit_database.service_url, options="-c timezone=UTC") as connection:
        for table in (WHATIF_RUN, WHATIF_ENTITY, WHATIF_TIMELINE):
            names = [sql.Identifier(name) for name in table.columns]
            query = sql.SQL("select {} from {}").format(
                sql.SQL(", ").join(names), sql.Identifier(table.name)
            )
            written = [
                tuple(json.loads(value) if name == "alterations" else value for name, value in each)
                for each in (row.items() for row in rows_of(tmp_path / "out", table))
            ]
            served = connection.execute(query).fetchall()
            assert len(served) == len(written)
            assert all(row in served for row in written)


UNKNOWN = body(({"user": "a"}, {"nope": 1}))
NEITHER = '{"alterations": [{"entity": {"user": "a"}, "ops": [{"key": "producer_byte_rate"}]}]}'
OF_ADDRESS = body(({"ip": "10.0.0.1"}, {"connection_creation_rate": 5}))
DOCUMENT = "quotas:\n- entity: {user: alice}\n  values: {producer_byte_rate: %d}\n"


@pytest.mark.parametrize(
    ("proposal", "sentence"),
    [
        (UNKNOWN, "/alterations/0/ops/0/key: "),
        (NEITHER, "/alterations/0/ops/0: "),
        ('{"alterations": [{"entity": {"user": "a"}}]}', "/alterations/0: ops is missing"),
        ('{"alterations": [], "more": 1}', "more is unknown here"),
        ('{"alterations": []}', "Nothing would change"),
        (DOCUMENT % 100, "Nothing would change"),
        (DOCUMENT % -1, "/document/quotas/0/values/producer_byte_rate: "),
        (OF_ADDRESS, "limits a user or client-id"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    spark_command: Command, lake: Path, tmp_path: Path, proposal: str, sentence: str
):
    file = tmp_path / "proposal"
    file.write_text(proposal, encoding="utf-8")
    done = spark_command(
        *("whatif", "--input", lake, "--quotas", lake, "--alterations", file),
        *("--out", tmp_path / "out"),
    )
    assert done.returncode == 2
    assert sentence in done.stderr
