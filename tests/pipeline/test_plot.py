"""Pictures: the files, the rows behind them, and names as people read them."""

import csv
import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.domain.quantities import value_in_words
from app.pipeline.lake import Lake
from app.pipeline.pictures.style import Ticks
from app.pipeline.summary import LONGEST_NAME, bucket_name, entity_name
from app.pipeline.tables import DIM_BUCKET, UTILIZATION_DAILY
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import (
    DAY,
    Row,
    at,
    bucket,
    facts_of_minutes,
    minute,
    publish,
    write_hours,
)

NAMES = ("utilization_heat_map", "rate_against_limit", "percentile_ladder")


def day(**columns: object) -> Row:
    row: Row = {
        "cluster_id": "c1",
        "dt": DAY.date(),
        "broker_id": 1,
        "key": "producer_byte_rate",
        "bucket_id": 7,
        "level": 3,
        "limit": 100.0,
        "p50": 40.0,
        "p95": 90.0,
        "p99": 110.0,
        "peak": 120.0,
        "util_p99": 1.1,
        "headroom": -10.0,
    }
    return row | columns


def drawn(
    command: Command, folder: Path, target: Path, *options: str
) -> dict[str, list[dict[str, str]]]:
    """Draw, and return the rows behind each picture."""
    done = command("plot", "--input", folder, "--out", target, *options)
    assert done.returncode == 0, done.stderr
    rows = {}
    for name in NAMES:
        data = (target / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", data[16:24])
        assert width > 1000
        assert height > 300
        with (target / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows[name] = list(csv.DictReader(file))
    return rows


def world(
    spark: SparkSession, folder: Path, minutes: list[Row], days: list[Row], names: list[Row]
) -> Path:
    write_hours(Lake(spark, str(folder)), minutes)
    tables = {UTILIZATION_DAILY: days, DIM_BUCKET: names}
    return publish(folder, {**tables, **facts_of_minutes(minutes)})


def test_each_picture_has_its_rows_beside_it_and_the_same_bytes_again(
    spark: SparkSession, spark_command: Command, tmp_path: Path
):
    minutes = [minute(number, rate_max=50.0 + number) for number in range(0, 120, 2)]
    minutes += [minute(130, broker_id=2, rate_max=120.0, throttle_ms_max=4.0)]
    minutes += [minute(0, bucket_id=8, limit=None, level=0)]
    days = [day(), day(broker_id=2, util_p99=0.9), day(broker_id=None, util_p99=9.0)]
    days += [day(bucket_id=8, limit=None, util_p99=None, headroom=None, level=0)]
    nasty = "a$b$\n日" + "x" * 100
    folder = world(spark, tmp_path / "in", minutes, days, [bucket(bucket_user=nasty)])
    rows = drawn(spark_command, folder, tmp_path / "out")
    heat = {row["hour"]: float(row["utilisation"]) for row in rows["utilization_heat_map"]}
    assert heat == {at(0).isoformat(): 1.08, at(60).isoformat(): 1.68, at(120).isoformat(): 1.2}
    rates = rows["rate_against_limit"]
    assert {row["broker_id"] for row in rates} == {"1"}
    assert [row["violating"] for row in rates].count("True") == 34
    [rung] = rows["percentile_ladder"]
    assert (rung["bucket_id"], rung["broker_id"], rung["p99"]) == ("7", "1", "110.0")
    assert rung["bucket"].startswith("{user=a$b$\\x0a日")
    assert len(rung["bucket"]) == LONGEST_NAME + len(" produce")
    drawn(spark_command, folder, tmp_path / "again")
    first, again = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        for name in ("out", "again")
    )
    assert len(first) > 1
    assert first == again


def test_results_without_rows_are_drawn_as_empty(
    spark: SparkSession, spark_command: Command, tmp_path: Path
):
    folder = world(spark, tmp_path / "in", [], [day()], [])
    rows = drawn(spark_command, folder, tmp_path / "out", "--cluster", "elsewhere")
    assert rows == {name: [] for name in NAMES}


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({}, "{user=alice}"),
        ({"bucket_client": "etl"}, "{user=alice, client-id=etl}"),
        ({"bucket_user": "", "bucket_client": "etl"}, "{client-id=etl}"),
        ({"bucket_user": "<default>"}, r"{user=\<default>}"),
        ({"bucket_user": None, "bucket_client": None}, "bucket 7"),
    ],
)
def test_a_bucket_is_called_by_its_tags(columns: Row, name: str):
    assert bucket_name(bucket(**columns)) == name


def test_a_quota_is_called_as_kafka_prints_it():
    both = bucket(quota_user="", quota_user_default=True, quota_client_id="etl")
    assert entity_name(both) == "{user=<default>, client-id=etl}"
    assert entity_name(bucket(quota_user="<default>")) == r"{user=\<default>}"
    assert entity_name(bucket(quota_user=None)) == ""


@pytest.mark.parametrize(
    ("highest", "words"),
    [
        (4.0, ["0 B/s", "1 MiB/s", "2 MiB/s", "3 MiB/s", "4 MiB/s"]),
        (2.5, ["0 B/s", "1 MiB/s", "2 MiB/s"]),
        (1.2, ["0 B/s", "512 KiB/s", "1 MiB/s"]),
        (1.0, ["0 B/s", "256 KiB/s", "512 KiB/s", "768 KiB/s", "1 MiB/s"]),
    ],
)
def test_ticks_are_at_round_numbers_of_the_unit_that_they_are_written_with(
    highest: float, words: list[str]
):
    key = "producer_byte_rate"
    ticks = [tick for tick in Ticks(key).tick_values(0, highest * 2**20) if tick <= highest * 2**20]
    assert [value_in_words(key, tick) for tick in ticks] == words


def test_ticks_of_percentages_are_at_round_numbers():
    assert list(Ticks("request_percentage").tick_values(0, 200)) == [0, 50, 100, 150, 200]


@pytest.mark.parametrize(
    ("job", "option"), [("plot", "--out"), ("incidents", "--plot"), ("collect", "--out")]
)
def test_pictures_and_scrapes_need_a_folder_of_this_machine(
    job: str, option: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    inputs = ["--endpoint", "1=http://127.0.0.1:1"] if job == "collect" else ["--input", tmp_path]
    done = command(job, *inputs, option, "hdfs://namenode/pictures")
    assert done.returncode == 2
    # What argparse refuses is not repeated: it may be a secret in the wrong option.
    refused = "argument --plot: …" if option == "--plot" else "hdfs://namenode/pictures"
    assert f"{refused} must be a folder of this machine: mount it" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_may_be_a_uri(spark: SparkSession, spark_command: Command, tmp_path: Path):
    folder = world(spark, tmp_path / "in", [minute(0)], [day()], [bucket()])
    target = tmp_path / "a b"
    done = spark_command("plot", "--input", folder, "--out", target.as_uri())
    assert done.returncode == 0, done.stderr
    assert (target / "percentile_ladder.png").exists()
