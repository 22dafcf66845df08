"""Each format says the same of the same points, and names what it cannot use."""

import gzip
import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.pipeline.errors import UsageError
from app.pipeline.ingest.metric_map import MetricMap
from tests.pipeline.ingest.points import (
    HEADERS,
    NOON,
    WRITERS,
    Point,
    good,
    query_range,
    read,
    refused,
    write_adapter,
    write_csv,
    write_parquet,
)

ODD_NAMES = (
    *("", "<default>", "a%2Fb", "50%", "a+b", 'say "hi"', "back\\slash", "*", "what?"),
    *("two\nlines", "Zoë 😀", "~tilde", "a,b=c:d", " blank ", '"quoted"', "User:bob", "a/b"),
)
LINE = "2026-11-21T12:00:00Z,1,byte_rate,Produce,alice,etl,"


def csv_file(folder: Path, *lines: str, header: str = ",".join(HEADERS)) -> Path:
    file = folder / "points.csv"
    file.write_text("\n".join((header, *lines)) + "\n")
    return file


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_says_the_same_of_odd_names(kind: str, tmp_path: Path):
    points = [Point(user=name, client_id="c") for name in ODD_NAMES]
    points += [Point(user="u", client_id=name) for name in ODD_NAMES]
    rows = read(WRITERS[kind](points, tmp_path), kind)
    assert refused(rows) == []
    assert [row[4:6] for row in good(rows)] == [(point.user, point.client_id) for point in points]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_knows_all_keys_and_their_throttle_times(kind: str, tmp_path: Path):
    told = {
        ("Produce", "byte_rate"): ("producer_byte_rate", "rate"),
        ("Fetch", "byte_rate"): ("consumer_byte_rate", "rate"),
        ("Request", "request_time"): ("request_percentage", "rate"),
        ("ControllerMutation", "mutation_rate"): ("controller_mutation_rate", "rate"),
        ("ControllerMutation", "tokens"): ("controller_mutation_rate", "tokens"),
        ("Request", "throttle_time"): ("request_percentage", "throttle"),
    }
    points = [Point(3, 7, attribute, resource, value=2.5) for resource, attribute in told]
    rows = read(WRITERS[kind](points, tmp_path), kind)
    assert good(rows) == [(3, 7, *item, "alice", "etl", 2.5, "") for item in told.values()]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_refuses_values_that_are_no_rates(kind: str, tmp_path: Path):
    values = {float("nan"): "nan", -1.0: "negative", float("inf"): "infinite", 1e13: "too-large"}
    points = [Point(value=value) for value in values]
    rows = read(WRITERS[kind](points, tmp_path), kind)
    assert [(reason, n) for _, reason, n in refused(rows)] == [
        (value, 1) for value in values.values()
    ]
    assert good(rows) == []


@pytest.mark.parametrize("kind", WRITERS)
def test_an_idle_throttle_time_is_used_and_says_nothing(kind: str, tmp_path: Path):
    rows = read(
        WRITERS[kind]([Point(attribute="throttle_time", value=float("nan"))], tmp_path), kind
    )
    assert [(row[3], row[6]) for row in good(rows)] == [("throttle", None)]


@pytest.mark.parametrize("kind", WRITERS)
def test_unknown_metrics_are_put_aside(kind: str, tmp_path: Path):
    points = [Point(attribute="byte_rat"), Point(resource="Produced"), Point(value=4)]
    rows = read(WRITERS[kind](points, tmp_path), kind)
    assert [reason for _, reason, _ in refused(rows)] == ["unknown-metric"] * 2
    assert [row[6] for row in good(rows)] == [4]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_period_leaves_points_out_before_they_are_judged(kind: str, tmp_path: Path):
    points = [Point(-1, value=-5), Point(0, value=1), Point(59, value=2), Point(60, attribute="x")]
    start = int(NOON.timestamp()) * 1_000_000
    place = WRITERS[kind](points, tmp_path)
    rows = read(place, kind, since_us=start, until_us=start + 60_000_000)
    assert [row[6] for row in good(rows)] == [1, 2]
    assert sum(n for _, reason, n in refused(rows) if reason == "outside-period") == 2
    assert {reason for _, reason, _ in refused(rows)} == {"outside-period"}


def test_a_csv_record_that_is_broken_costs_its_line_alone(tmp_path: Path):
    lines = (LINE + "1", LINE, LINE + '"2', LINE + "1,2", "", LINE + "1_0", LINE + "3")
    rows = read(csv_file(tmp_path, *lines, LINE.replace("alice", '"a"b"') + "4"), "csv")
    assert [row[6] for row in good(rows)] == [1, 3]
    assert refused(rows) == [(line, "unparsable", 1) for line in (3, 4, 5, 7, 9)]
    assert rows[2]["text"] == LINE + '"2'


def test_a_csv_name_that_is_no_text_is_put_aside(tmp_path: Path):
    file = csv_file(tmp_path, LINE.replace("alice", "al\xefce") + "1", LINE + "2")
    file.write_bytes(file.read_bytes().replace("ï".encode(), b"\xff"))
    rows = read(file, "csv")
    assert refused(rows) == [(2, "undecodable-name", 1)]
    assert [row[6] for row in good(rows)] == [2]


def test_a_header_may_begin_with_a_byte_order_mark(tmp_path: Path):
    header = ",".join(f'"{name}"' for name in HEADERS)
    file = csv_file(tmp_path, LINE + "1\r", header=f"\ufeff{header}\r")
    assert [row[6] for row in good(read(file, "csv"))] == [1]


@pytest.mark.parametrize(
    "time", ["2026-11-21T12:00:05Z", "2026-11-21 13:00:05+01:00", "2026-11-21T12:00:05"]
)
def test_times_are_read_as_text(time: str, tmp_path: Path):
    rows = read(csv_file(tmp_path, f"{time},1,byte_rate,Fetch,,,1"), "csv")
    assert good(rows)[0][0] == 5


@pytest.mark.parametrize("digits", [0, 3, 6, 9])
def test_times_are_read_as_numbers_of_any_size(digits: int, tmp_path: Path):
    time = Point(5).at * 10**digits
    rows = read(csv_file(tmp_path, f"{time},1,byte_rate,Fetch,,,1"), "csv")
    assert good(rows)[0][0] == 5


def test_a_missing_column_is_named_with_the_headers_that_are_there(tmp_path: Path):
    file = csv_file(tmp_path, header="time,broker_id,metric,resource,user,client_id,value")
    with pytest.raises(UsageError, match=r"no column ts\. Its headers are time, broker_id"):
        read(file, "csv")
    told = MetricMap.of({"columns": {"ts": "when"}})
    with pytest.raises(UsageError, match=r"no column ts \(mapped to 'when'\)"):
        read(file, "csv", told)


def test_a_map_names_columns_instances_and_the_encoding(tmp_path: Path):
    told = MetricMap.of(
        {
            "columns": {"ts": "Time", "user": "who", "resource": None, "client_id": None},
            "instances": {"kafka-0:9404": 12},
            "urlencoded": True,
        }
    )
    header = "Time,instance,metric,who,value"
    row = "1763726400,kafka-0:9404,kafka_server_fetch_byte_rate,a%20b,3"
    rows = read(csv_file(tmp_path, row, row.replace("%20", "%"), header=header), "csv", told)
    key = "consumer_byte_rate"
    assert [item[1:7] for item in good(rows)] == [(12, key, "rate", "a b", "", 3)]
    assert refused(rows) == [(3, "undecodable-name", 1)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ({"column": {}}, "mapping of columns"),
        ({"columns": {"broker": "b"}}, "`columns`"),
        ({"columns": {"ts": 1}}, "`columns`"),
        ({"instances": {"a": "1"}}, "`instances`"),
        ({"urlencoded": "yes"}, "`urlencoded`"),
        ({"grain": "pairs"}, "`grain`"),
        ([], "mapping of columns"),
    ],
)
def test_a_map_that_nobody_could_follow_is_refused(text: object, told: str):
    with pytest.raises(UsageError, match=told):
        MetricMap.of(text)


def labelled(folder: Path, *labels: dict[str, str | None]) -> Path:
    name = {"__name__": "kafka_server_quota_byte_rate", "resource": "Fetch"}
    result = [{"metric": name | label, "values": [[Point().at, "1"]]} for label in labels]
    file = folder / "labels.json"
    file.write_text(query_range(result))
    return file


def test_the_labels_of_a_client_id_may_be_spelled_in_any_way(tmp_path: Path):
    spellings = ("clientId", "clientid", "client_id", "client-id", "CLIENT_ID")
    labels = [{"broker": "1", name: "etl"} for name in spellings]
    assert [row[5] for row in good(read(labelled(tmp_path, *labels), "prom-json"))] == ["etl"] * 5


def test_the_broker_is_its_id_else_its_name_else_the_instance(tmp_path: Path):
    told = MetricMap.of({"instances": {"k2:9404": 2, "kafka-3": 3}})
    labels = (
        {"broker_id": "0", "broker": "9", "instance": "k2:9404"},
        {"broker": "1", "instance": "k2:9404"},
        {"instance": "k2:9404"},
        {"broker": "kafka-3"},
        {"instance": "k4:9404"},
        {"broker": "kafka-5", "instance": "k2:9404"},
        {"broker_id": "-1"},
        {"broker_id": "3000000000"},
        {},
    )
    rows = read(labelled(tmp_path, *labels), "prom-json", told)
    assert [row[1] for row in good(rows)] == [0, 1, 2, 3]
    assert refused(rows) == [(line, "missing-broker", 1) for line in (5, 6, 7, 8, 9)]


def test_names_that_cannot_be_decoded_are_put_aside(tmp_path: Path):
    bad = ("%", "%zz", "%2", "%ff", "a%C3", "\ud800")
    labels = [{"broker_id": "1", "user": item} for item in bad]
    clients = ('"a\\x"', '"a"b,"', '"\\"')
    labels += [{"broker_id": "1", "client_id": client} for client in clients]
    rows = read(labelled(tmp_path, *labels), "prom-json")
    assert refused(rows) == [(line, "undecodable-name", 1) for line in range(1, 10)]


def test_a_cluster_label_names_the_cluster(tmp_path: Path):
    labels = ({"cluster": "a"}, {"cluster_id": "b", "cluster": "a"}, {"cluster": None})
    rows = read(labelled(tmp_path, *({"broker": "1"} | label for label in labels)), "prom-json")
    assert [row[7] for row in good(rows)] == ["a", "b", ""]


def test_points_of_an_unknown_series_are_counted_together(tmp_path: Path):
    file = tmp_path / "a.json"
    many = {"metric": {"__name__": "node_load1"}, "values": [[Point(n).at, "1"] for n in range(9)]}
    file.write_text(query_range([many]))
    assert refused(read(file, "prom-json")) == [(1, "unknown-metric", 9)]


def test_a_series_or_point_of_the_wrong_shape_is_put_aside(tmp_path: Path):
    labels = Point().labels(__name__=Point().metric)
    result = [
        {"metric": labels, "values": [[Point().at, "1"], [None, "1"], [Point(1).at, "x"]]},
        {"metric": labels, "values": [[1]]},
        {"metric": labels, "value": [Point(2).at, "5"]},
        {"metric": ["a"], "values": [[Point().at, "1"]]},
        {"metric": labels | {"user": 1}, "values": [[Point().at, "1"]]},
    ]
    file = tmp_path / "a.json"
    file.write_text(query_range(result))
    rows = read(file, "prom-json")
    assert [row[6] for row in good(rows)] == [1, 5]
    assert refused(rows) == [(line, "unparsable", 1) for line in (1, 1, 2, 4, 5)]


def test_lines_that_are_no_messages_are_put_aside(tmp_path: Path):
    file = write_adapter([Point()], tmp_path)
    line = json.loads(file.read_text())
    lines = [
        *("", "{", "[]", '"x"', "null", "[" * 100_000),
        *(json.dumps({name: line[name] for name in line if name != item}) for item in line),
        *(json.dumps(line | {name: None}) for name in ("timestamp", "value", "labels")),
        json.dumps(line | {"timestamp": "soon"}),
        json.dumps(line | {"value": True}),
    ]
    file.write_text("\n".join(lines) + "\n" + json.dumps(line))
    rows = read(file, "adapter-json")
    # Without `name` the label `__name__` says it.
    assert len(good(rows)) == 2
    assert [reason for _, reason, _ in refused(rows)] == ["unparsable"] * 13
    file.write_bytes(b"\xff\xfe\n")
    assert read(file, "adapter-json")[0]["text"] == "\\xff\\xfe"


def test_lines_of_an_export_that_do_not_pair_are_put_aside(tmp_path: Path):
    file = tmp_path / "a.jsonl"
    labels = Point().labels(__name__=Point().metric)
    at = Point().at * 1000
    lines = (
        {"metric": labels, "values": [1, 2], "timestamps": [at]},
        {"metric": labels, "values": ["Infinity", 3], "timestamps": [at, at + 1000]},
        {"metric": labels, "values": [1]},
    )
    file.write_text("\n".join(map(json.dumps, lines)))
    rows = read(file, "vm-jsonl")
    assert refused(rows) == [(1, "unparsable", 1), (2, "infinite", 1), (3, "unparsable", 1)]
    assert [(row[0], row[6]) for row in good(rows)] == [(1, 3)]


@pytest.mark.parametrize("kind", ["prom-json", "parquet", "collect", "csv"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff\x00", b"\x1f\x8bbroken"])
def test_a_file_that_cannot_be_read_is_one_row(kind: str, content: bytes, tmp_path: Path):
    bad = tmp_path / "a.bin"
    bad.write_bytes(content)
    assert refused(read(bad, kind)) == [(0, "unreadable-file", 1)]


@pytest.mark.parametrize("kind", ["csv", "adapter-json", "vm-jsonl", "prom-json"])
def test_files_may_be_gzipped_and_a_torn_one_is_one_row(kind: str, tmp_path: Path):
    plain = WRITERS[kind]([Point(n) for n in range(3)], tmp_path)
    zipped = plain.with_name(plain.name + ".gz")
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert good(read(zipped, kind)) == good(read(plain, kind))
    zipped.write_bytes(zipped.read_bytes()[:-9])
    assert refused(read(zipped, kind))[-1] == (0, "unreadable-file", 1)


def test_columns_of_parquet_may_have_other_types(tmp_path: Path):
    file = tmp_path / "a.parquet"
    rows = {
        "ts": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("ns")),
        "broker_id": pa.array([1.0, 2.0]),
        "metric": pa.array(["producer_byte_rate"] * 2).dictionary_encode(),
        "user": pa.array(["alice", None], pa.large_string()),
        "client_id": pa.array([None, None], pa.string()),
        "value": pa.array([1, 2], pa.int64()),
        "cluster_id": pa.array(["c", None]),
    }
    pq.write_table(pa.table(rows), file)
    parsed = read(file, "parquet")
    assert good(parsed) == [(0, 1, "producer_byte_rate", "rate", "alice", "", 1, "c")]
    assert refused(parsed) == [(2, "unparsable", 1)]


def test_the_lines_of_parquet_are_rows_across_row_groups(tmp_path: Path):
    points = [Point(n, value=-1 if n == 7 else 1) for n in range(10)]
    assert refused(read(write_parquet(points, tmp_path), "parquet")) == [(8, "negative", 1)]


def test_a_folder_named_after_its_cluster_names_it(tmp_path: Path):
    folder = tmp_path / "cluster_id=a%3Db" / "dt=2026-11-21"
    folder.mkdir(parents=True)
    write_parquet([Point()], folder)
    assert good(read(tmp_path, "parquet"))[0][7] == "a=b"


def test_a_folder_gives_its_files_of_the_format_and_no_other(tmp_path: Path):
    write_csv([Point()], tmp_path)
    write_parquet([Point()], tmp_path)
    (tmp_path / "_runs").mkdir()
    write_csv([Point()], tmp_path / "_runs")
    assert len(read(tmp_path, "csv")) == 1
    assert len(read(tmp_path / "*.csv", "csv")) == 1
    with pytest.raises(UsageError, match="holds no prom-json file"):
        read(tmp_path, "prom-json")
    with pytest.raises(UsageError, match="does not exist"):
        read(tmp_path / "none", "csv")


def test_times_before_1970_and_on_the_last_day_of_all_are_put_aside(tmp_path: Path):
    last = datetime.max.replace(tzinfo=NOON.tzinfo)
    times = (
        *(last.isoformat(), f"{last:%Y-%m-%dT%H:%M:%S}-14:00", "9999-12-31T00:00:00Z"),
        *("0001-01-01T00:00:00+14:00", "1970-01-01T00:59:59+01:00", "-1", "1e300", "nan"),
    )
    fine = ("9999-12-30T23:59:59.999999Z", "1970-01-01T00:00:00Z")
    lines = [f"{time},1,byte_rate,Fetch,,,1" for time in (*times, *fine)]
    rows = read(csv_file(tmp_path, *lines), "csv")
    assert refused(rows) == [(line, "unparsable", 1) for line in range(2, 10)]
    assert len(good(rows)) == len(fine)


def test_a_series_without_numbers_costs_no_other(tmp_path: Path):
    labels = Point().labels(__name__=Point().metric)
    pairs = [[Point(0).at, "1"], [Point(1).at, "2", "3"], "x", [Point(2).at, "4"]]
    result = [
        {"metric": labels, "histograms": [[Point().at, {"count": "1"}]]},
        {"metric": labels, "values": pairs},
        {"values": pairs},
        {"metric": labels, "values": {}},
        "alice",
    ]
    file = tmp_path / "a.json"
    file.write_text(query_range(result))
    rows = read(file, "prom-json")
    assert [row[6] for row in good(rows)] == [1, 4]
    assert refused(rows) == [(line, "unparsable", 1) for line in (1, 2, 2, 3, 4, 5)]
