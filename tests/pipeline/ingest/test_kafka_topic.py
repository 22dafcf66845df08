"""A topic is read between offsets that are fixed beforehand, message by message."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from app.localdev.kafka import LocalKafka
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.ingest import kafka_topic
from app.pipeline.ingest.inputs import KAFKA, Inputs
from app.pipeline.ingest.kafka_topic import (
    OffsetRange,
    cut,
    offsets_of,
    read_range,
    settings_of_file,
    topic_inputs,
    topic_of,
)
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.read import lines_of_items, read_points
from app.pipeline.job import Job
from app.pipeline.spark import spark_session
from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import (
    NOON,
    Point,
    adapter_message,
    good,
    refused,
    rows_of,
    run_job,
    write_adapter,
)
from tests.testkit.kafka import unique

DEADLINE_S = 30.0
PARTITIONS = 4


@pytest.fixture(scope="module")
def producer() -> Producer:
    """A cluster inside librdkafka, for as long as its producer lives."""
    return Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})


@pytest.fixture(scope="module")
def servers(producer: Producer) -> str:
    broker = producer.list_topics(timeout=DEADLINE_S).brokers.popitem()[1]
    return f"{broker.host}:{broker.port}"


def produce(producer: Producer, topic: str, *messages: bytes | None) -> None:
    """Put each message into the partition of its number."""
    for number, message in enumerate(messages):
        producer.produce(topic, message, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.small
def test_all_messages_up_to_the_offsets_of_the_plan_are_read_in_ranges(
    producer: Producer, servers: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kafka_topic, "_RANGE", 3)
    fine, broken = [adapter_message(Point(n)) for n in range(60)], (None, b"", b"{", b"\xff")
    produce(producer, "all", *fine[:41])
    produce(producer, "bad", *fine[:PARTITIONS], *broken)
    inputs = topic_inputs([f"kafka://{servers}/{topic}" for topic in ("all", "bad")], {})
    produce(producer, "all", *fine[41:])
    spans = [(span["from"], span["to"]) for span in inputs.read]
    assert spans == [(0, 11), *[(0, 10)] * 3, *[(0, 2)] * 4]
    ranges = [(item.first, item.end) for item in cut(OffsetRange("all", 1, 0, 10))]
    assert ranges == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert inputs.names == [
        f"kafka://{servers}/{topic}/{number}" for topic in ("all", "bad") for number in range(4)
    ]
    points = read_points(SparkSession.active(), inputs, Rules())
    assert points.rdd.getNumPartitions() == 4 * 4 + 4
    rows = rows_of(points)
    of_all, of_bad = (
        [row for row in rows if (row["file"] < 4) is first] for first in (True, False)
    )
    assert sorted(row[0] for row in good(of_all)) == list(range(41))
    assert refused(of_all) == []
    assert refused(of_bad) == [(1, "unparsable", 1)] * 4, "it is named by its offset"
    assert len(good(of_bad)) == 4


def messages(spark: SparkSession, servers: str, topic: str, end: int, **settings: str) -> DataFrame:
    """Return the messages of the first partition before an offset."""
    items = [(servers, OffsetRange(topic, 0, 0, end))]
    inputs = Inputs(KAFKA, items=items, read_item=partial(read_range, settings=settings))
    return lines_of_items(spark, inputs)


def test_each_session_and_each_reading_has_ranges_of_its_own(
    producer: Producer, servers: str, spark: SparkSession
):
    produce(producer, "own", *[adapter_message(Point(n)) for n in range(12)])
    frames = [messages(spark, servers, "own", end) for end in range(2)]
    for end in (2, 3):
        with spark_session("beside") as beside:
            frames.append(messages(beside, servers, "own", end))
    assert [frame.count() for frame in frames] == [0, 1, 2, 3]


PASSWORD = "correct horse"


def ingest_command(
    command: Command, servers: str, folder: Path, *options: str, **settings: str
) -> CompletedProcess[str]:
    """Ingest the first message of a topic with a password among the client's settings."""
    config, offsets = folder / "client.properties", folder / "offsets.json"
    lines = {"sasl.password": PASSWORD, **settings}.items()
    config.write_text("".join(f"{name}={value}\n" for name, value in lines))
    offsets.write_text('[{"topic": "secret", "partition": 0, "from": 0, "to": 1}]')
    source = ("--format", "kafka-json", "--input", f"kafka://{servers}/secret")
    files = ("--kafka-config", config, "--offsets", offsets, "--out", folder / "out")
    return command("ingest", *source, *files, *options)


def test_a_password_is_in_no_plan_and_no_setting_of_spark(
    *,
    producer: Producer,
    servers: str,
    spark_command: Command,
    spark: SparkSession,
    tmp_path: Path,
):
    produce(producer, "secret", adapter_message(Point()))
    done = ingest_command(spark_command, servers, tmp_path, "--explain")
    assert done.returncode == 0, done.stderr
    assert "Scan TopicsAndServers" in done.stderr
    read = messages(spark, servers, "secret", 1, **{"sasl.password": PASSWORD})
    execution = read._jdf.queryExecution()
    plans = [execution.toString(), execution.logical().toJSON(), execution.analyzed().toJSON()]
    configured = [str(spark.sparkContext.getConf().getAll()), str(spark.conf.getAll)]
    for text in (done.stdout, done.stderr, *plans, *configured):
        assert PASSWORD not in text


def test_what_a_worker_says_of_the_settings_is_reported_without_the_password(
    servers: str, spark_command: Command, tmp_path: Path
):
    done = ingest_command(spark_command, servers, tmp_path, nonsense="1")
    sentence = (
        "quota-pipeline ingest: --kafka-config: the setting nonsense is unknown or has no good "
        "value."
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, sentence)
    assert PASSWORD not in done.stdout + done.stderr


def test_a_topic_that_is_not_there_is_named(servers: str):
    with pytest.raises(UsageError, match="--input: nowhere cannot be read: "):
        topic_inputs([f"kafka://{servers}/nowhere"], {})


@pytest.mark.small
def test_an_address_without_a_topic_is_refused():
    assert topic_of("kafka://a:1,b:2/t") == ("a:1,b:2", "t")
    for uri in ("kafka://a:1", "kafka:///t", "kafka://a:1/t/u", "a:1/t"):
        with pytest.raises(UsageError, match="is not kafka://HOST:PORT"):
            topic_of(uri)


def test_brokers_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kafka_topic, "_REQUEST_S", 1.0)
    with pytest.raises(InfrastructureError, match=r"^127\.0\.0\.1:1: "):
        offsets_of("t", {"bootstrap.servers": "127.0.0.1:1"})


def test_settings_of_the_client_come_from_a_file(tmp_path: Path):
    file = tmp_path / "client.properties"
    file.write_text("# ours\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    assert settings_of_file(str(file)) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    with pytest.raises(UsageError, match="--kafka-config"):
        offsets_of("t", {"bootstrap.servers": "a:1", "security.protocoll": "x"})
    file.write_text("security.protocol\n")
    with pytest.raises(UsageError, match="NAME=VALUE"):
        settings_of_file(str(file))
    with pytest.raises(UsageError, match="cannot be read"):
        settings_of_file(str(tmp_path / "none"))


POINTS = [Point(n, n % 3, user=f"user {n % 7}", client_id='a"b', value=n / 7) for n in range(90)]
BAD = b'{"timestamp": "yesterday"'


def minutes(out: Path) -> list[dict[str, Any]]:
    table = pq.read_table(out / "rate_minute")
    return sorted(table.to_pylist(), key=str)


def test_a_topic_gives_the_minutes_of_the_same_lines_and_names_the_offset_of_a_bad_message(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
):
    topic, servers = unique("metrics"), broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    fine = [adapter_message(point) for point in POINTS]
    for message in (*fine[:40], BAD, *fine[40:]):
        producer.produce(topic, message, partition=0)
    assert producer.flush(60) == 0
    streamed = run_job(spark, "kafka-json", f"kafka://{servers}/{topic}", tmp_path / "topic")
    from_file = run_job(spark, "adapter-json", write_adapter(POINTS, tmp_path), tmp_path / "file")
    assert (streamed.counts["rows_used"], streamed.quarantined) == (len(POINTS), 1)
    assert (from_file.counts["rows_used"], from_file.quarantined) == (len(POINTS), 0)
    assert minutes(tmp_path / "topic") == minutes(tmp_path / "file") != []
    (bad,) = pq.read_table(tmp_path / "topic" / "quarantine").to_pylist()
    assert bad["source"] == f"kafka://{servers}/{topic}/0"
    assert (bad["line"], bad["reason"], bad["raw"]) == (40, "unparsable", BAD.decode())


def test_reading_ends_where_a_transaction_is_open(
    broker: LocalKafka, tmp_path: Path, spark: SparkSession
):
    topic, servers = unique("metrics"), broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for first in (0, 3):
        producer.begin_transaction()
        for number in range(first, first + 3):
            producer.produce(topic, adapter_message(Point(number)), partition=0)
        assert producer.flush(DEADLINE_S) == 0
        if first == 0:
            producer.commit_transaction(DEADLINE_S)
    job = run_job(spark, "kafka-json", f"kafka://{servers}/{topic}", tmp_path)
    producer.abort_transaction(DEADLINE_S)
    # The fourth message is the mark of the commit.
    assert job.counts["offsets"] == [{"topic": topic, "partition": 0, "from": 0, "to": 4}]
    assert job.counts["used"] == {"rate": 3}


def test_a_day_that_retention_removes_stays_and_reported_offsets_can_be_read_again(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
):
    topic, servers = unique("metrics"), broker.bootstrap_servers
    uri, out, producer = (
        f"kafka://{servers}/{topic}",
        tmp_path / "out",
        Producer({"bootstrap.servers": servers}),
    )

    def ingest(seconds: Sequence[int], *options: str) -> Job:
        for point in map(Point, seconds):
            message = adapter_message(point)
            producer.produce(topic, message, partition=0, timestamp=point.at * 1000)
        assert producer.flush(DEADLINE_S) == 0
        return run_job(spark, "kafka-json", uri, out, *options)

    def stored() -> list[int]:
        noon = NOON.timestamp()
        return sorted(int(row["ts"].timestamp() - noon) for row in minutes(out))

    day = 86_400
    first = ingest([0, 60, 120, day])
    admin = AdminClient({"bootstrap.servers": servers})
    (removed,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    removed.result(DEADLINE_S)
    job = ingest([day + 60])
    assert job.counts["offsets"] == [{"topic": topic, "partition": 0, "from": 2, "to": 5}]
    assert job.run_id != first.run_id, "other offsets are another run"
    assert stored() == [0, 60, 120, day, day + 60]
    report = tmp_path / "report.json"
    report.write_text(json.dumps(job.counts, default=str))
    assert ingest([day + 120], "--offsets", str(report)).run_id == job.run_id
    assert stored()[-1] == day + 60
    report.write_text("[1]")
    with pytest.raises(UsageError, match="is not the `offsets` of a report"):
        ingest([], "--offsets", str(report))
