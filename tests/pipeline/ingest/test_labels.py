"""Labels are read alike in every format, as exporters spell them or as a map names them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.errors import UsageError
from app.pipeline.ingest.metric_map import MetricMap
from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import NOON, good, query_range, read, read_each, refused
from tests.testkit.exporter_samples import EXPORTERS, MEANT

AT = int(NOON.timestamp())
_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def series(name: str, value: object = 1, **labels: str) -> Any:
    return {"metric": {"__name__": name, **labels}, "values": [[AT, str(value)]]}


def scraped(text: str) -> list[Any]:
    """Return the series that a scrape becomes, with the broker that Prometheus adds."""
    return [
        series(name, value, broker="1", **dict(_LABEL.findall(labels)))
        for name, labels, value in _SAMPLE.findall(text)
    ]


def written(file: Path, found: list[Any]) -> Path:
    file.write_text(query_range(found))
    return file


def mapped(**columns: str | None) -> MetricMap:
    return MetricMap.of({"columns": columns})


def test_every_exporter_in_use_is_read_alike(tmp_path: Path, spark: SparkSession):
    del spark
    files = {
        name: written(tmp_path / str(number), scraped(text))
        for number, (name, text) in enumerate(EXPORTERS.items())
    }
    found = read_each(files, "prom-json")
    assert {
        name: [row[2:7] for row in good(rows)] for name, rows in found.items()
    } == dict.fromkeys(EXPORTERS, MEANT)
    assert all(refused(rows) == [] for rows in found.values())


def test_a_csv_has_the_same_spellings(tmp_path: Path, spark: SparkSession):
    del spark
    file = tmp_path / "points.csv"
    header = "ts,node.id,__name__,quota_type,username,messaging_client_id,value,kafka_cluster_id"
    row = f"{AT},7,kafka_server_quota_byte_rate,Fetch,alice,etl,3,c"
    file.write_text(f"{header}\n{row}\n")
    assert good(read(file, "csv")) == [(0, 7, "consumer_byte_rate", "rate", "alice", "etl", 3, "c")]


def test_a_map_names_labels_of_series(tmp_path: Path, spark: SparkSession):
    del spark
    labels = {"metric": "what", "resource": "of", "user": "who", "client_id": "app"}
    metric_map = mapped(broker_id="box", cluster_id="site", **labels)
    metric = {"what": "kafka_server_quota_byte_rate", "of": "Fetch", "who": "bob", "app": "web"}
    # Labels of the usual names mean something else where the map says so.
    others = {"user": "x", "client_id": "x", "resource": "Produce", "broker": "9", "cluster": "x"}
    found = [series("node_load1", **metric, box="3", site="a", **others)]
    prometheus = written(tmp_path / "prometheus", found)
    assert good(read(prometheus, "prom-json", metric_map)) == [
        (0, 3, "consumer_byte_rate", "rate", "bob", "web", 1, "a")
    ]
    message = {"timestamp": AT, "value": "1", "name": "x", "labels": found[0]["metric"]}
    (tmp_path / "adapter").write_text(json.dumps(message))
    assert good(read(tmp_path / "adapter", "adapter-json", metric_map)) == good(
        read(prometheus, "prom-json", metric_map)
    )


def test_null_says_that_there_is_no_such_label(tmp_path: Path, spark: SparkSession):
    del spark
    file = written(
        tmp_path / "f", [series("kafka_server_fetch_byte_rate", broker="1", client_id="agent")]
    )
    [row] = good(read(file, "prom-json", mapped(client_id=None)))
    assert row[5] == ""


@pytest.mark.parametrize("kind", ["prom-json", "vm-jsonl", "adapter-json", "kafka-json"])
@pytest.mark.parametrize("column", ["ts", "value"])
@pytest.mark.small
def test_a_map_of_what_is_no_label_is_refused(
    spark_command: Command, tmp_path: Path, kind: str, column: str
):
    (tmp_path / "map.yaml").write_text(f"columns: {{{column}: time}}")
    done = spark_command(
        *("ingest", "--format", kind, "--input", tmp_path, "--out", tmp_path / "out"),
        *("--map", tmp_path / "map.yaml"),
    )
    assert done.returncode == 2
    assert f"`columns` cannot name {column} with --format {kind}" in done.stderr


def test_values_that_mean_none_are_no_names(tmp_path: Path, spark: SparkSession):
    del spark
    metric_map = MetricMap.of({"none": ["not_applicable", "-"]})
    name = "kafka_server_quota_byte_rate"
    both = [
        series(name, 1, broker="1", quota_type="Fetch", user="alice", client_id="not_applicable"),
        series(name, 2, broker="1", quota_type="Fetch", user="-", client_id="etl"),
    ]
    file = written(tmp_path / "f", both)
    assert [row[4:6] for row in good(read(file, "prom-json", metric_map))] == [
        ("alice", ""),
        ("", "etl"),
    ]
    (tmp_path / "csv").write_text(
        f"ts,broker,metric,resource,user,client_id,value\n{AT},1,byte_rate,Fetch,-,-,1\n"
    )
    assert [row[4:6] for row in good(read(tmp_path / "csv", "csv", metric_map))] == [("", "")]


@pytest.mark.parametrize("none", ["unknown", [None], [1]])
def test_values_that_mean_none_are_texts(none: object):
    with pytest.raises(UsageError, match="`none`"):
        MetricMap.of({"none": none})


def test_of_labels_that_may_name_a_broker_the_map_knows_which(tmp_path: Path, spark: SparkSession):
    del spark
    metric_map = MetricMap.of({"instances": {"my-cluster-kafka-0": 5}})
    labels = {"instance": "10.0.0.1:9404", "kubernetes_pod_name": "my-cluster-kafka-0"}
    file = written(tmp_path / "f", [series("kafka_server_Produce_byte_rate", 500, **labels)])
    assert [row[1] for row in good(read(file, "prom-json", metric_map))] == [5]


def ingested(command: Command, folder: Path, found: list[Any]) -> tuple[str, Mapping[str, Any]]:
    """Ingest series; return what people are printed, and the report."""
    file = written(folder / "in.json", found)
    done = command(
        *("ingest", "--format", "prom-json", "--input", file, "--out", folder / "out"),
        *("--cluster", "c", "--json"),
    )
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads(done.stdout)


def test_rows_that_all_lack_their_broker_say_how_to_map_it(spark_command: Command, tmp_path: Path):
    labels = {"instance": "kafka1:1234", "job": "kafka-broker", "user": "alice"}
    printed, report = ingested(
        spark_command, tmp_path, [series("kafka_server_produce_byte_rate", **labels)]
    )
    assert report["quarantined_by_reason"] == {"missing-broker": 1}
    assert "No row names its broker. There is instance (kafka1:1234)" in printed
    assert '`instances: {"kafka1:1234": 1}`' in printed
    # What else names the broker is up to the map.
    printed, _ = ingested(
        spark_command, tmp_path, [series("kafka_server_produce_byte_rate", box="k1", user="alice")]
    )
    assert "there are __name__, box, user" in printed
    assert "`columns: {broker_id: LABEL}`" in printed


def test_an_input_without_quota_metrics_says_what_that_may_mean(
    spark_command: Command, tmp_path: Path
):
    printed, _ = ingested(spark_command, tmp_path, [series("jvm_threads_current", broker="1")])
    assert (
        "No quota metrics in this input: no quotas are set, or the exporter has no rule for them."
        in printed
    )


def test_the_share_that_brokers_compute_is_left_out(spark_command: Command, tmp_path: Path):
    names = {"broker_id": "1", "user": "alice", "client_id": "etl"}
    printed, report = ingested(
        spark_command,
        tmp_path,
        [
            series("kafka_server_Produce_byte_rate", 21.5, **names),
            series("kafka_server_Produce_quota_utilization", 21.5, **names),
        ],
    )
    assert (report["rows_in"], report["left_out"], report["quarantined"]) == (1, 1, 0)
    assert report["dq_failed"] == []
    assert "No quota metrics" not in printed


def test_a_user_that_swallowed_a_client_id_is_quarantined_and_a_finding(
    spark_command: Command, tmp_path: Path
):
    rate = "kafka_server_produce_byte_rate"
    _, report = ingested(
        spark_command,
        tmp_path,
        [
            series(rate, 500, broker_id="1", user="alice, client-id=etl"),
            series(rate, 500, broker_id="1", client_id='"consumer:1"'),
        ],
    )
    assert report["quarantined_by_reason"] == {"undecodable-name": 1}
    done = spark_command("doctor", "--json", "--input", tmp_path / "out")
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["exporter rules"]["status"] == "warn"
    assert "in 1 rows the user holds `, client-id=`" in checks["exporter rules"]["detail"]
