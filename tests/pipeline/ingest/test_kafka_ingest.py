"""A topic of a real broker becomes the minutes that the same lines in a file become."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from app.localdev.kafka import LocalKafka
from app.pipeline.commands.ingest import ingest
from app.pipeline.ingest.request import inputs_of, request_of
from app.pipeline.job import Job
from app.pipeline.main import _parser
from tests.pipeline.ingest.points import Point, adapter_message, write_adapter
from tests.testkit.kafka import unique

POINTS = [Point(n, n % 3, user=f"user {n % 7}", client_id='a"b', value=n / 7) for n in range(90)]
BAD = b'{"timestamp": "yesterday"'


def ingested(spark: SparkSession, kind: str, source: str | Path, out: Path) -> Job:
    given = ["--format", kind, "--input", str(source), "--out", str(out), "--cluster", "c"]
    job = Job("ingest", _parser(["ingest"]).parse_args(["ingest", *given]))
    job.session = spark
    request = request_of(job)
    ingest(job, request, inputs_of(job, request), job.lake())
    return job


def minutes(out: Path) -> list[dict[str, Any]]:
    table = pq.read_table(out / "observation_minute")
    return sorted(table.drop_columns(["source", "ingest_run_id"]).to_pylist(), key=str)


def test_a_topic_gives_the_minutes_of_the_same_lines_and_names_the_offset_of_a_bad_one(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
):
    topic, servers = unique("metrics"), broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    fine = [adapter_message(point) for point in POINTS]
    for message in (*fine[:40], BAD, *fine[40:]):
        producer.produce(topic, message, partition=0)
    assert producer.flush(60) == 0
    streamed = ingested(spark, "kafka-json", f"kafka://{servers}/{topic}", tmp_path / "topic")
    from_file = ingested(spark, "adapter-json", write_adapter(POINTS, tmp_path), tmp_path / "file")
    assert (streamed.counts["rows_used"], streamed.quarantined) == (len(POINTS), 1)
    assert (from_file.counts["rows_used"], from_file.quarantined) == (len(POINTS), 0)
    assert minutes(tmp_path / "topic") == minutes(tmp_path / "file") != []
    (bad,) = pq.read_table(tmp_path / "topic" / "quarantine").to_pylist()
    assert bad["source"] == f"kafka://{servers}/{topic}/0"
    assert (bad["line"], bad["reason"], bad["raw"]) == (40, "unparsable", BAD.decode())
