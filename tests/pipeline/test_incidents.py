"""Stretches of violating minutes: by hand, and by brute force on random worlds."""

import json
import random
from argparse import Namespace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from app.pipeline.commands.incidents import write_incidents
from app.pipeline.job import Job
from app.pipeline.lake import Lake
from app.pipeline.main import main
from app.pipeline.tables import (
    DIM_BUCKET,
    RATE_MINUTE,
    SERIES,
    SERIES_LIMIT,
    THROTTLE_INCIDENT,
)
from app.pipeline.usage.incidents import (
    contributors_of,
    find_stretches,
    last_minutes,
    status_of,
    violating_minutes,
)
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import (
    Row,
    arrow,
    at,
    bucket,
    drawn,
    facts_of_observations,
    hours_of,
    minute,
    observation,
    publish,
    read_arrow,
    write_hours,
)
from tests.testkit.sizes import size

World = list[tuple[int, int, bool, bool]]
"""Broker, minute, whether it is over its limit, and whether it is throttled."""

MIDNIGHT, UNLIMITED = "midnight", "unlimited"


def midnight() -> list[Row]:
    over = [
        minute(1439, rate_max=150.0, throttle_ms_max=10_000.0),
        minute(1440, rate_max=120.0, throttle_ms_max=30_000.0, throttle_ms_avg=5.0),
        minute(1441, rate_max=90.0, throttle_ms_avg=20_000.0, level=1),
    ]
    rows = [*over, minute(1442), minute(1450, rate_max=100.0)]
    rows += [minute(1440, broker_id=2, rate_max=101.0), minute(1450, broker_id=3, rate_max=101.0)]
    return [row | {"cluster_id": MIDNIGHT} for row in rows]


def unlimited() -> list[Row]:
    nothing = minute(0, limit=None, level=0, throttle_ms_max=1.0)
    mutation = minute(0, bucket_id=8, key="controller_mutation_rate", rate_max=200.0)
    return [row | {"cluster_id": UNLIMITED} for row in (nothing, mutation)]


_MINUTES = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 30), st.booleans(), st.booleans()),
    min_size=1,
    max_size=40,
    unique_by=lambda item: item[:2],
)


def _brute_force(world: World, gap: int) -> set[tuple[Any, ...]]:
    """Return (broker, start, end, minutes, brokers affected, open) of each incident."""
    stretches: list[tuple[int, list[int]]] = []
    for broker in (1, 2):
        violating = sorted(
            time for on, time, over, slow in world if on == broker and (over or slow)
        )
        if not violating:
            continue
        cuts = [new for new, (old, late) in enumerate(pairwise(violating), 1) if late - old > gap]
        edges = [0, *cuts, len(violating)]
        stretches += [(broker, violating[begin:end]) for begin, end in pairwise(edges)]
    last = max(time for _, time, _, _ in world)
    return {
        (
            *(broker, times[0], times[-1] + 1, len(times)),
            len({b for b, t in stretches if t[0] <= times[-1] and t[-1] >= times[0]}),
            times[-1] == last,
        )
        for broker, times in stretches
    }


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return drawn(_MINUTES, size(40, 150))


@pytest.fixture(scope="module")
def hours(spark: SparkSession, worlds: list[World]) -> pa.Table:
    """The hours of all clusters, so that a query serves several tests."""
    rows = [
        minute(
            time,
            cluster_id=f"{number:03}",
            broker_id=broker,
            rate_max=100.0 + (time + 1) / 7 if over else 99.0,
            throttle_ms_avg=(time + 1) / 7 if slow else None,
        )
        for number, world in enumerate(worlds)
        for broker, time, over, slow in world
    ]
    return hours_of([*rows, *midnight(), *unlimited()])


def found(hours: pa.Table, gap: int) -> list[Row]:
    """Return the incidents in the order of start, bucket and broker."""
    days = hours.select(["cluster_id", "dt"]).group_by(["cluster_id", "dt"]).aggregate([])
    of_days = (
        hours.filter((pc.field("cluster_id") == day["cluster_id"]) & (pc.field("dt") == day["dt"]))
        for day in days.to_pylist()
    )
    nothing = violating_minutes(hours.slice(0, 0))
    violating = pa.concat_tables([nothing, *map(violating_minutes, of_days)])
    stretches = find_stretches(violating, gap)
    status = status_of(stretches, last_minutes(violating))
    keys = ("cluster_id", "start", "bucket_id", "broker_id")
    by = [(name, "ascending") for name in keys]
    return stretches.append_column("status", status).sort_by(by).to_pylist()


@pytest.fixture(scope="module")
def joined(hours: pa.Table) -> dict[int, list[Row]]:
    """The incidents by gap."""
    return {gap: found(hours, gap) for gap in (1, 4)}


def of_cluster(rows: list[Row], cluster: str) -> list[Row]:
    return [row for row in rows if row["cluster_id"] == cluster]


@pytest.mark.small
def test_a_stretch_across_midnight_is_one_incident(joined: dict[int, list[Row]]):
    first, on_two, at_the_end = of_cluster(joined[1], MIDNIGHT)
    assert (first["start"], first["end"], first["minutes"]) == (at(1439), at(1442), 3)
    assert (first["peak_ratio"], first["throttle_ms_p95"], first["level"]) == (1.5, 30_000, 1)
    assert first["est_deferred_bytes"] == 50 * 10 + 20 * 30
    assert (first["brokers_affected"], first["status"]) == (2, "closed")
    assert (on_two["broker_id"], on_two["throttle_ms_p95"]) == (2, None)
    assert on_two["brokers_affected"] == 2
    assert (at_the_end["status"], at_the_end["brokers_affected"]) == ("open", 1)
    assert len({row["incident_id"] for row in (first, on_two, at_the_end)}) == 3


@pytest.mark.small
def test_throttling_without_a_limit_has_no_ratio_and_other_keys_no_bytes(
    joined: dict[int, list[Row]],
):
    nothing, other = of_cluster(joined[1], UNLIMITED)
    assert (nothing["peak_ratio"], nothing["est_deferred_bytes"]) == (None, 0)
    assert (other["peak_ratio"], other["est_deferred_bytes"]) == (2.0, None)


@pytest.mark.parametrize("gap", [1, 4])
@pytest.mark.small
def test_random_worlds_agree_with_brute_force(
    joined: dict[int, list[Row]], worlds: list[World], gap: int
):
    mine: dict[str, set[tuple[Any, ...]]] = {}
    for row in joined[gap]:
        start, end = ((row[name] - at(0)).total_seconds() / 60 for name in ("start", "end"))
        incident = (row["broker_id"], start, end, row["minutes"], row["brokers_affected"])
        mine.setdefault(row["cluster_id"], set()).add((*incident, row["status"] == "open"))
    for number, world in enumerate(worlds):
        assert mine.get(f"{number:03}", set()) == _brute_force(world, gap)


def test_any_order_gives_the_same_incidents(hours: pa.Table, joined: dict[int, list[Row]]):
    backwards = hours.take(pa.array(range(len(hours) - 1, -1, -1)))
    assert found(backwards, 4) == joined[4]


def test_without_violations_there_are_no_incidents(hours: pa.Table):
    assert found(hours.slice(0, 0), 1) == []
    day = hours.filter(pc.equal(hours["cluster_id"], MIDNIGHT)).slice(0, 1)
    first, nothing = (find_stretches(violating_minutes(day.slice(0, each)), 1) for each in (1, 0))
    assert (len(first), len(nothing)) == (1, 0)
    assert first.schema == nothing.schema
    quiet = hours.filter(pc.equal(pc.list_value_length(hours["violations"]), 0))
    assert 0 < len(quiet) < len(hours)
    assert found(quiet, 1) == []


def limited(of: Row, bucket_id: int, **columns: Any) -> tuple[Row, Row]:
    """Return an observation, and the limit of its series from that minute on."""
    limit = {"bucket_id": bucket_id, "level": 3, "limit": 100.0, "valid_from": of["ts"]}
    return of, limit | {"valid_to": of["ts"] + timedelta(hours=1)} | columns


def publish_members(folder: Path, members: list[tuple[Row, Row]]) -> Path:
    """Write observations of series, and their limits."""
    facts = facts_of_observations(row for row, _ in members)
    of_series = ("cluster_id", "dt", "hour", "series_id")
    limits = [
        {name: rate[name] for name in of_series} | limit
        for rate, (_, limit) in zip(facts[RATE_MINUTE], members, strict=True)
    ]
    return publish(folder, {**facts, SERIES_LIMIT: limits})


@pytest.mark.parametrize("by", ["tasks", "Spark"])
def test_an_incident_names_its_quota_and_who_began(
    spark: SparkSession, tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
):
    if by == "Spark":
        monkeypatch.setattr("app.pipeline.by_partition.local_partitions", lambda *_: None)
    dim = [
        bucket(last_seen=at(1)),
        bucket(level=6, quota_user="alice", last_seen=at(0)),
        bucket(level=6, quota_user="", quota_user_default=True, hour=1, last_seen=at(60)),
        bucket(bucket_id=8, level=1, bucket_client="own", quota_client_id="own"),
        bucket(bucket_id=9, level=8, bucket_user="", bucket_client="etl", quota_user=""),
    ]
    minutes = [minute(5, rate_max=150.0, level=6), minute(5, bucket_id=8, level=1)]
    minutes.append(minute(5, bucket_id=9, level=8, rate_max=300.0))
    minutes.append(minute(5, bucket_id=10, level=2, rate_max=300.0))
    minutes.append(minute(6, rate_max=150.0, level=6))
    members = [limited(observation(5, "alice", f"app{n}", 10.0 + n), 7) for n in range(6)]
    members += [
        limited(observation(5, "alice", "own", 99.0), 8),
        limited(observation(5, "alice", "etl", 50.0), 7),
        limited(observation(5, "bob", "etl", 70.0), 9),
        limited(observation(5, "alice", "", 1.0), 7),
        limited(observation(6, "alice", "late", 1000.0), 7),
        limited(observation(5, "alice", "until then", 1000.0), 7, valid_to=at(5)),
        limited(observation(5, "alice", "tagged", 1000.0, grain="bucket"), 7),
        limited(observation(5, "alice", "elsewhere", 1000.0, broker_id=2), 7),
    ]
    folder = publish_members(publish(tmp_path, {DIM_BUCKET: dim}), members)
    lake = Lake(spark, str(folder))
    write_hours(lake, minutes)
    options = Namespace(gap=1, explain=False, catalog=None, out=str(folder))
    day = {"cluster_id": "c1", "dt": f"{at(0):%F}"}
    write_incidents(Job("incidents", options), [lake], lake, [day])
    alices, etls, unnamed = read_arrow(folder, THROTTLE_INCIDENT).to_pylist()
    quota = ("quota_user", "quota_user_default", "quota_client_id", "quota_client_default")
    assert [alices[name] for name in quota] == ["", True, "", False]
    assert [unnamed[name] for name in (*quota, "first_contributors")] == [None] * 5
    contributors = json.loads(alices["first_contributors"])
    assert [item["client-id"] for item in contributors] == ["etl", "app5", "app4", "app3", "app2"]
    assert contributors[0] == {"user": "alice", "client-id": "etl", "rate_max": 50.0}
    assert [load["user"] for load in json.loads(etls["first_contributors"])] == ["bob"]


def test_contributors_are_written_as_spark_writes_json(spark: SparkSession):
    drawing = random.Random(3)
    rates = [0.0, 1e-06, 0.001, 0.0009, 9999999.9, 1e7, 12345678.9, 1e22, 1.5e300]
    rates += [drawing.randrange(2 ** drawing.randrange(1, 60)) / 1e6 for _ in range(400)]
    names = ['"', "\\", "".join(map(chr, range(1, 32))), "\0", "/\x7f", "é\u2028😀", ""]
    members = [
        limited(observation(0, names[n % 7], f"{n} {names[n % 5]}", rate), n // 2)
        for n, rate in enumerate(rates)
    ]
    facts = facts_of_observations(row for row, _ in members)
    series, first = (arrow(table, facts[table]) for table in (SERIES, RATE_MINUTE))
    ids = [row["series_id"] for row in facts[RATE_MINUTE]]
    limits = [limit | {"series_id": each} for each, (_, limit) in zip(ids, members, strict=True)]
    begun = [
        {"incident_id": f"{n}", "bucket_id": n, "broker_id": 1, "start": at(0)}
        for n in range(-(-len(rates) // 2))
    ]
    made = contributors_of(
        arrow(THROTTLE_INCIDENT, begun).select([*begun[0]]),
        first.select(["series_id", "broker_id", "ts", "rate_max"]),
        series.select(["series_id", "grain", "user", "client_id"]),
        arrow(SERIES_LIMIT, limits).select(["series_id", "valid_from", "valid_to", "bucket_id"]),
    )
    loads = [
        {"user": row["user"], "client-id": row["client_id"], "rate_max": row["rate_max"]}
        for row, _ in members
    ]
    pairs = [sorted(loads[n : n + 2], key=_falling) for n in range(0, len(loads), 2)]
    kind = "loads array<struct<user: string, `client-id`: string, rate_max: double>>"
    frame = spark.createDataFrame([(pair,) for pair in pairs], kind)
    of_spark = [row[0] for row in frame.select(sf.to_json("loads")).collect()]
    by_incident = {row["incident_id"]: row["first_contributors"] for row in made.to_pylist()}
    assert [by_incident[f"{n}"] for n in range(len(pairs))] == of_spark


def _falling(load: dict[str, Any]) -> float:
    return -float(load["rate_max"])


@pytest.mark.parametrize("gap", ["0", "-1", "1.5", "x"])
def test_a_gap_is_a_whole_number_of_minutes(gap: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["incidents", f"--gap={gap}"])
    assert ended.value.code == 2
    assert "--gap: " in capsys.readouterr().err


def test_the_command_replaces_the_days_that_it_reads(
    spark: SparkSession, spark_command: Command, tmp_path: Path
):
    rows = [minute(number, rate_max=101.0) for number in (1440, 1442, 1443, 2880)]
    world = publish(tmp_path / "in", {DIM_BUCKET: [bucket(), bucket(dt=at(1440).date())]})
    write_hours(Lake(spark, str(world)), rows)
    earlier = [
        {"cluster_id": "c1", "incident_id": name, "bucket_id": 7, "start": at(start)}
        | {"dt": at(start).date(), "end": at(start + 1), "status": status}
        for name, start, status in (
            *(("stays", 1400, "closed"), ("goes", 1450, "open")),
            *(("later", 2890, "closed"), ("later, open", 2900, "open")),
        )
    ]
    out = publish(tmp_path / "out", {THROTTLE_INCIDENT: earlier})
    options = ["--input", world, "--out", out, "--gap", "2", "--to", "2026-11-22"]
    ended = spark_command("incidents", "--json", *options)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["rows_in"], report["incidents"], report["findings"]) == (3, 1, 1)
    stays, new, *later = read_arrow(out, THROTTLE_INCIDENT).to_pylist()
    assert (stays["incident_id"], stays["status"]) == ("stays", "closed")
    assert [row["status"] for row in later] == ["closed", "open"]
    assert (new["start"], new["end"], new["minutes"]) == (at(1440), at(1444), 3)
    assert (new["quota_user"], new["status"]) == ("alice", "open")
    assert {row["bucket_user"] for row in read_arrow(out, DIM_BUCKET).to_pylist()} == {"alice"}


def test_an_incident_that_was_open_at_midnight_goes_on(spark: SparkSession, tmp_path: Path):
    """As with a run of each day: the days are not read together."""
    lake = Lake(spark, str(tmp_path))
    options = Namespace(gap=1, explain=False, catalog=None, out=str(tmp_path))
    found = []
    for numbers in ((1438, 1439), (1440, 1441, 1450)):
        rows = [minute(number, rate_max=101.0 if number < 1450 else 1.0) for number in numbers]
        write_hours(lake, rows)
        job = Job("incidents", options)
        day = {"cluster_id": "c1", "dt": f"{at(numbers[0]):%F}"}
        write_incidents(job, [lake], lake, [day])
        stored = read_arrow(tmp_path, THROTTLE_INCIDENT).to_pylist()
        found.append([(row["start"], row["end"], row["status"]) for row in stored])
    assert found == [
        [(at(1438), at(1440), "open")],
        [(at(1438), at(1442), "closed")],
    ]


def found_by_days(
    spark: SparkSession, folder: Path, steps: list[tuple[list[int], dict[int, float]]]
) -> list[tuple[Any, ...]]:
    """Replace hours with these rates by minute, find the incidents of their days; return all."""
    lake = Lake(spark, str(folder))
    options = Namespace(gap=2, explain=False, catalog=None, out=str(folder))
    for days, rates in steps:
        rows = [minute(number, rate_max=rate) for number, rate in rates.items()]
        write_hours(lake, rows)
        about = [{"cluster_id": "c1", "dt": f"{at(1440 * day):%F}"} for day in days]
        write_incidents(Job("incidents", options), [lake], lake, about)
    stored = read_arrow(folder, THROTTLE_INCIDENT).to_pylist()
    return sorted((row["start"], row["end"], row["minutes"], row["status"]) for row in stored)


FIRST_DAY = {1300: 101.0, 1437: 101.0, 1439: 101.0}
OVER_MIDNIGHT = {1441: 101.0, 1442: 101.0, 1500: 101.0, 2879: 101.0}
LAST_DAY = {2880: 101.0, 2890: 1.0}


@pytest.mark.parametrize(
    "steps",
    [
        [([1], OVER_MIDNIGHT), ([0], FIRST_DAY), ([2], LAST_DAY)],
        [([2], LAST_DAY), ([1], OVER_MIDNIGHT), ([0], FIRST_DAY)],
        [([0], FIRST_DAY), ([1], OVER_MIDNIGHT), ([2], LAST_DAY), ([0], FIRST_DAY)],
        [([0], FIRST_DAY), ([2], LAST_DAY), ([1], OVER_MIDNIGHT), ([1], OVER_MIDNIGHT)],
        [([0], FIRST_DAY), ([1], {1440: 101.0, 1441: 1.0}), ([1, 2], OVER_MIDNIGHT | LAST_DAY)],
        [([0, 1], FIRST_DAY | {1441: 1.0, 2879: 1.0}), ([2], LAST_DAY), ([1], OVER_MIDNIGHT)],
    ],
    ids=["a late day", "backwards", "again", "between", "corrected", "no longer quiet"],
)
def test_days_in_any_order_give_the_incidents_of_all_together(
    spark: SparkSession, tmp_path: Path, steps: list[tuple[list[int], dict[int, float]]]
):
    expected = [
        (at(1300), at(1301), 1, "closed"),
        (at(1437), at(1443), 4, "closed"),
        (at(1500), at(1501), 1, "closed"),
        (at(2879), at(2881), 2, "closed"),
    ]
    together = [([0, 1, 2], FIRST_DAY | OVER_MIDNIGHT | LAST_DAY)]
    assert found_by_days(spark, tmp_path / "together", together) == expected
    assert found_by_days(spark, tmp_path / "by day", steps) == expected


def test_an_hour_that_is_corrected_divides_an_incident_of_two_days(
    spark: SparkSession, tmp_path: Path
):
    world = FIRST_DAY | OVER_MIDNIGHT | LAST_DAY
    quiet = {1437: 1.0, 1439: 1.0}
    found = found_by_days(spark, tmp_path, [([0, 1, 2], world), ([0], quiet)])
    assert [(start, end) for start, end, *_ in found] == [
        (at(1300), at(1301)),
        (at(1441), at(1443)),
        (at(1500), at(1501)),
        (at(2879), at(2881)),
    ]


def test_incidents_of_other_days_are_not_read(spark: SparkSession, tmp_path: Path):
    lake = Lake(spark, str(tmp_path))
    found_by_days(spark, tmp_path, [([0], {5: 101.0, 600: 1.0}), ([2], {2885: 101.0, 2999: 1.0})])
    write_hours(lake, [minute(1500)])
    for file in tmp_path.rglob(f"dt={at(0):%F}/**/*.parquet"):
        file.write_bytes(b"no Parquet")
    job = Job("incidents", Namespace(gap=1, explain=False, catalog=None, out=str(tmp_path)))
    about = [{"cluster_id": "c1", "dt": f"{at(2880):%F}"}]
    assert write_incidents(job, [lake], lake, about) == about
    assert job.counts["incidents"] == 1
