"""Each format says the same of the same points, and names what it cannot use.

Many small files are read by one job: it costs as much as a job of one file.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.pipeline.commands.ingest import load_map
from app.pipeline.errors import UsageError
from app.pipeline.ingest.inputs import Inputs, file_inputs
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.read import without_broken_files
from tests.pipeline.ingest.points import (
    HEADERS,
    NOON,
    WRITERS,
    Point,
    Row,
    adapter_message,
    good,
    query_range,
    read,
    read_each,
    refused,
    run_job,
    write_csv,
    write_parquet,
)

NAN = float("nan")
START_US = int(NOON.timestamp()) * 1_000_000
ODD_NAMES = (
    *("", "<default>", "a%2Fb", "50%", "a+b", 'say "hi"', "back\\slash", "*", "what?"),
    *("two\nlines", "Zoë 😀", "~tilde", "a,b=c:d", " blank ", '"quoted"', "User:bob", "a/b"),
)
ODD_POINTS = [
    *(Point(user=name, client_id="c") for name in ODD_NAMES),
    *(Point(user="u", client_id=name) for name in ODD_NAMES),
]
KEYS = {
    ("Produce", "byte_rate"): ("producer_byte_rate", "rate"),
    ("Fetch", "byte_rate"): ("consumer_byte_rate", "rate"),
    ("Request", "request_time"): ("request_percentage", "rate"),
    ("ControllerMutation", "mutation_rate"): ("controller_mutation_rate", "rate"),
    ("ControllerMutation", "tokens"): ("controller_mutation_rate", "tokens"),
    ("Request", "throttle_time"): ("request_percentage", "throttle"),
}
NO_RATES = {NAN: "nan", -1.0: "negative", float("inf"): "infinite", 1e13: "too-large"}


def expected(point: Point, key: str = "producer_byte_rate", attribute: str = "rate") -> Any:
    """Return what `good` says of a point."""
    value = None if point.value != point.value else point.value
    names = (point.user, point.client_id)
    return (point.second, point.broker, key, attribute, *names, value, "")


SAME: Mapping[str, tuple[list[Point], list[Any], list[str]]] = {
    "odd names": (ODD_POINTS, list(map(expected, ODD_POINTS)), []),
    "all keys and their throttle times": (
        [Point(3, 7, attribute, resource, value=2.5) for resource, attribute in KEYS],
        [expected(Point(3, 7, value=2.5), *key) for key in KEYS.values()],
        [],
    ),
    "values that are no rates": (
        [Point(value=value) for value in NO_RATES],
        [],
        list(NO_RATES.values()),
    ),
    "an idle throttle time, which is used": (
        [Point(attribute="throttle_time", value=NAN)],
        [expected(Point(value=NAN), attribute="throttle")],
        [],
    ),
    "unknown metrics": (
        [Point(attribute="byte_rat"), Point(resource="Produced"), Point(value=4)],
        [expected(Point(value=4))],
        ["unknown-metric"] * 2,
    ),
    "points outside the period, which are left out before they are judged": (
        [Point(-1, value=-5), Point(0, value=1), Point(59, value=2), Point(60, attribute="x")],
        [expected(Point(0, value=1)), expected(Point(59, value=2))],
        ["left-out"] * 2,
    ),
}


UNREADABLE = {str(content): content for content in (b"", b"\x00\xff\x00", b"\x1f\x8bbroken")}
PARQUET = ("parquet", "collect")
ZIPPED = ("csv", "adapter-json", "vm-jsonl", "prom-json")
MESSAGE = json.loads(adapter_message(Point()))
NO_MESSAGES = (
    *("", "{", "[]", '"x"', "null", "[" * 100_000),
    *(json.dumps(MESSAGE) + more for more in ("x", json.dumps(MESSAGE), "]")),
    json.dumps(MESSAGE).replace('"', "'"),
    *(json.dumps({name: MESSAGE[name] for name in MESSAGE if name != item}) for item in MESSAGE),
    *(json.dumps(MESSAGE | {name: None}) for name in ("timestamp", "value", "labels")),
    *(
        json.dumps(MESSAGE | change)
        for change in ({"timestamp": "soon"}, {"timestamp": 10**400}, {"value": True}, {})
    ),
)
NO_TEXT = adapter_message(Point(user="alice")).replace(b"alice", b"al\xffce")
SERIES = Point().labels(__name__=Point().metric)
AT = Point().at
EXPORT = (
    {"metric": SERIES, "values": [1, 2], "timestamps": [AT * 1000]},
    {"metric": SERIES, "values": ["Infinity", 3], "timestamps": [AT * 1000, AT * 1000 + 1000]},
    {"metric": SERIES, "values": [1]},
)
LINES: Mapping[str, Mapping[str, bytes]] = {
    "adapter-json": {"lines": "\n".join(NO_MESSAGES).encode(), "no text": b"\xff\xfe\n" + NO_TEXT},
    "vm-jsonl": {"lines": "\n".join(map(json.dumps, EXPORT)).encode()},
}
Found = Mapping[str, list[Row]]


READ = [
    pytest.param(kind, marks=pytest.mark.small) if kind == "collect" else kind for kind in WRITERS
]
"""Other tests of the small run read the others: CSV and Parquet, and JSON of servers and topics."""


@pytest.fixture(scope="module", params=READ)
def found(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Found:
    """What is made of all files of a format: those above, broken ones and compressed ones."""
    del spark
    kind, files = request.param, {}
    plain = [Point(n) for n in range(3)]
    for name, points in [*((name, same[0]) for name, same in SAME.items()), ("plain", plain)]:
        files[name] = WRITERS[kind](points, tmp_path_factory.mktemp(kind))
    contents = {**UNREADABLE, **LINES.get(kind, {})}
    if kind in ZIPPED:
        contents["whole.gz"] = gzip.compress(files["plain"].read_bytes())
        contents["torn.gz"] = contents["whole.gz"][:-9]
        contents["no.gz"] = files["plain"].read_bytes()
        contents["unnamed"] = contents["whole.gz"]
    files |= written(tmp_path_factory.mktemp(kind), contents)
    return read_each(files, kind, since_us=START_US, until_us=START_US + 60_000_000)


def test_every_format_says_the_same(found: Found, request: pytest.FixtureRequest):
    # Of Parquet the rows of other times are not even read; the report counts them.
    kind = request.node.callspec.params["found"]
    unread = {"left-out"} if kind in PARQUET else set()
    expectations = {
        name: (fine, [item for item in problems if item not in unread])
        for name, (_, fine, problems) in SAME.items()
    }
    if kind == "csv":
        # A record is a line; one of two lines is two that are none.
        fine = expectations["odd names"][0]
        one_line = [row for row in fine if not any("\n" in str(name) for name in row)]
        expectations["odd names"] = (one_line, ["unparsable"] * 2 * (len(fine) - len(one_line)))
    assert {name: (good(found[name]), reasons(found[name])) for name in SAME} == expectations


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_report_counts_what_is_outside_the_period(
    kind: str, spark: SparkSession, tmp_path: Path
):
    points = [Point(second) for second in (-1, 0, 3599, 3600, 7200)]
    period = ("--from", "2026-11-21T12:10", "--to", "2026-11-21T12:20")
    job = run_job(spark, kind, WRITERS[kind](points, tmp_path), tmp_path / "out", *period)
    assert (job.counts["rows_in"], job.counts["left_out"]) == (2, 3)
    assert job.counts["used"] == {"rate": 2}


def reasons(rows: Sequence[Row]) -> list[str]:
    return [reason for _, reason, n in refused(rows) for _ in range(n)]


@pytest.mark.parametrize("found", ["prom-json", "parquet", "collect", "csv"], indirect=True)
def test_a_file_that_cannot_be_read_is_one_row(found: Found):
    assert [refused(found[name]) for name in UNREADABLE] == [[(0, "unreadable-file", 1)]] * 3


@pytest.mark.parametrize("found", ZIPPED, indirect=True)
def test_files_may_be_gzipped_and_broken_ones_are_one_row_each(found: Found):
    """Spark goes by the name: one of a file that is compressed ends in .gz."""
    assert good(found["whole.gz"]) == good(found["plain"]) != []
    for name in ("torn.gz", "no.gz", "unnamed"):
        unreadable = [row for row in found[name] if row["problem"] == "unreadable-file"]
        assert [row["line"] for row in unreadable] == [0], name


@pytest.mark.parametrize("found", ["adapter-json"], indirect=True)
def test_lines_that_are_no_messages_are_quarantined(found: Found):
    # Without `name` the label `__name__` says it.
    assert len(good(found["lines"])) == 2
    assert reasons(found["lines"]) == ["unparsable"] * 18
    first, second = found["no text"]
    assert first["text"] == "\\xff\\xfe"
    assert (second["problem"], "al\\xffce" in second["text"]) == ("unparsable", True)


@pytest.mark.parametrize("found", ["vm-jsonl"], indirect=True)
def test_lines_of_an_export_that_do_not_pair_are_quarantined(found: Found):
    rows = found["lines"]
    assert reasons(rows) == ["unparsable", "infinite", "unparsable"]
    assert rows[1]["text"] == f'{{"metric": {compact(SERIES)}, "value": [{AT * 1000}, Infinity]}}'
    assert [(row[0], row[6]) for row in good(rows)] == [(1, 3)]


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


LINE = "2026-11-21T12:00:00Z,1,byte_rate,Produce,alice,etl,"
TIMES = (
    *("2026-11-21T12:00:05Z", "2026-11-21 13:00:05+01:00", "2026-11-21T12:00:05"),
    *(str(Point(5).at * 10**digits) for digits in (0, 3, 6, 9)),
)
LAST = datetime.max.replace(tzinfo=NOON.tzinfo)
NO_TIMES = (
    *(LAST.isoformat(), f"{LAST:%Y-%m-%dT%H:%M:%S}-14:00", "9999-12-31T00:00:00Z"),
    *("0001-01-01T00:00:00+14:00", "1970-01-01T00:59:59+01:00", "-1", "1e300", "nan"),
)
LAST_TIMES = ("9999-12-30T23:59:59.999999Z", "1970-01-01T00:00:00Z")


def csv_of(*lines: str, header: str = ",".join(HEADERS)) -> bytes:
    return ("\n".join((header, *lines)) + "\n").encode("latin-1")


def at_times(*times: str) -> list[str]:
    return [f"{time},1,byte_rate,Fetch,,,1" for time in times]


def test_a_broken_record_of_a_csv_costs_its_line_alone(tmp_path: Path):
    lines = (LINE + "1", LINE, LINE + '"2', LINE + "1,2", "", LINE + "1_0", LINE + "3")
    quoted = ",".join(f'"{name}"' for name in HEADERS)
    contents = {
        "records": csv_of(*lines, LINE.replace("alice", '"a"b"') + "4"),
        "name that is no text": csv_of(LINE.replace("alice", "al\xffce") + "1", LINE + "2"),
        "byte order mark": csv_of(LINE + "1\r", header=f"\xef\xbb\xbf{quoted}\r"),
        "times": csv_of(*at_times(*TIMES)),
        "tabs": csv_of(LINE + "1", LINE + "5").replace(b",", b"\t"),
        "times before 1970 and on the last day of all": csv_of(*at_times(*NO_TIMES, *LAST_TIMES)),
    }
    found = read_each(written(tmp_path, contents), "csv")
    assert {name: (len(good(rows)), reasons(rows)) for name, rows in found.items()} == {
        "records": (2, ["unparsable"] * 5),
        "name that is no text": (1, ["undecodable-name"]),
        "byte order mark": (1, []),
        "times": (len(TIMES), []),
        "tabs": (2, []),
        "times before 1970 and on the last day of all": (
            len(LAST_TIMES),
            ["unparsable"] * len(NO_TIMES),
        ),
    }
    values = {name: [row[6] for row in good(rows)] for name, rows in found.items()}
    assert (values["records"], values["name that is no text"]) == ([1, 3], [2])
    assert values["tabs"] == [1, 5]
    assert found["records"][2]["text"] == LINE + '"2'
    assert {row[0] for row in good(found["times"])} == {5}


def written(folder: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    """Write a file of each content; return them by its name."""
    files = {
        name: folder / f"{number}{'.gz' if name.endswith('.gz') else ''}"
        for number, name in enumerate(contents)
    }
    for name, file in files.items():
        file.write_bytes(contents[name])
    return files


def test_a_missing_column_is_named_with_the_headers_that_are_there(tmp_path: Path):
    file = tmp_path / "points.csv"
    file.write_bytes(csv_of(header="time,broker_id,metric,resource,user,client_id,value"))
    with pytest.raises(UsageError, match=r"has no column ts\.") as raised:
        read(file, "csv")
    # What the file holds is for the terminal alone.
    assert "time" not in str(raised.value)
    assert raised.value.content.startswith("Its headers are time, broker_id")
    metric_map = MetricMap.of({"columns": {"ts": "when"}})
    with pytest.raises(UsageError, match=r"no column ts \(mapped to 'when'\)"):
        read(file, "csv", metric_map)


def test_a_map_names_columns_instances_and_the_encoding(tmp_path: Path):
    metric_map = MetricMap.of(
        {
            "columns": {"ts": "Time", "user": "who", "resource": None, "client_id": None},
            "instances": {"kafka-0:9404": 12},
            "urlencoded": True,
        }
    )
    row = "1763726400,kafka-0:9404,kafka_server_fetch_byte_rate,a%20b,3"
    file = tmp_path / "points.csv"
    file.write_bytes(csv_of(row, row.replace("%20", "%"), header="Time,instance,metric,who,value"))
    rows = read(file, "csv", metric_map)
    key = "consumer_byte_rate"
    assert [item[1:7] for item in good(rows)] == [(12, key, "rate", "a b", "", 3)]
    assert reasons(rows) == ["undecodable-name"]


@pytest.mark.parametrize(
    ("text", "sentence"),
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
@pytest.mark.small
def test_a_map_that_nobody_could_follow_is_refused(text: object, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        MetricMap.of(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("- secret\n- b: [\n", r"is not YAML \(line 3\)"), ("secret", "must be a mapping")],
)
@pytest.mark.small
def test_a_file_that_is_no_map_is_not_repeated(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "map"
    file.write_text(text)
    with pytest.raises(UsageError, match=sentence) as raised:
        load_map(str(file))
    assert "secret" not in f"{raised.value}{raised.value.content}"


def labelled(*labels: Mapping[str, str | None]) -> list[Any]:
    """Return a series for each set of labels."""
    name = {"__name__": "kafka_server_quota_byte_rate", "resource": "Fetch"}
    return [{"metric": name | label, "values": [[AT, "1"]]} for label in labels]


SPELLINGS = ("clientId", "clientid", "client_id", "client-id", "CLIENT_ID")
PAIRS = [[AT, "1"], [AT + 1, "2", "3"], "x", [AT + 2, "4"]]
QUERY_RANGES: Mapping[str, tuple[list[Any], list[Any], list[Any]]] = {
    "the labels of a client-id may be spelled in any case": (
        labelled(*({"broker": "1", name: "etl"} for name in SPELLINGS)),
        ["etl"] * 5,
        [],
    ),
    "the broker is its id, else its name, else the instance": (
        labelled(
            {"broker_id": "0", "broker": "9", "instance": "k2:9404"},
            {"broker": "1", "instance": "k2:9404"},
            {"instance": "k2:9404"},
            {"broker": "kafka-3"},
            {"instance": "k4:9404"},
            {"broker": "kafka-5", "instance": "k2:9404"},
            {"broker_id": "-1"},
            {"broker_id": "3000000000"},
            {},
        ),
        [0, 1, 2, 3],
        [(line, "missing-broker", 1) for line in (5, 6, 7, 8, 9)],
    ),
    "names that cannot be decoded": (
        labelled(
            *(
                {"broker_id": "1", "user": item}
                for item in ("%", "%zz", "%2", "%ff", "a%C3", "\ud800")
            ),
            *({"broker_id": "1", "client_id": item} for item in ('"a\\x"', '"a"b,"', '"\\"')),
        ),
        [],
        [(line, "undecodable-name", 1) for line in range(1, 10)],
    ),
    "a label names the cluster": (
        labelled(
            {"broker": "1", "cluster": "a"},
            {"broker": "1", "cluster_id": "b", "cluster": "a"},
            {"broker": "1", "cluster": None},
        ),
        ["a", "b", ""],
        [],
    ),
    "points of an unknown series are counted together": (
        [{"metric": {"__name__": "node_load1"}, "values": [[AT + n, "1"] for n in range(9)]}],
        [],
        [(1, "unknown-metric", 9)],
    ),
    "a series or point of the wrong shape": (
        [
            {"metric": SERIES, "values": [[AT, "1"], [None, "1"], [AT + 1, "x"]]},
            {"metric": SERIES, "values": [[1]]},
            {"metric": SERIES, "value": [AT + 2, "5"]},
            {"metric": ["a"], "values": [[AT, "1"]]},
            {"metric": SERIES | {"user": 1}, "values": [[AT, "1"]]},
        ],
        [1, 5],
        [(line, "unparsable", 1) for line in (1, 1, 2, 4, 5)],
    ),
    "a series without numbers costs no other": (
        [
            {"metric": SERIES, "histograms": [[AT, {"count": "1"}]]},
            {"metric": SERIES, "values": PAIRS},
            {"values": PAIRS},
            {"metric": SERIES, "values": {}},
            "alice",
        ],
        [1, 4],
        [(line, "unparsable", 1) for line in (1, 2, 2, 3, 4, 5)],
    ),
}
"""Series to the client-id, broker, cluster or value of what is fine, and to what is not."""
COLUMNS = {
    "the labels of a client-id may be spelled in any case": 5,
    "the broker is its id, else its name, else the instance": 1,
    "a label names the cluster": 7,
}


def test_series_of_a_query_are_judged_each_by_itself(tmp_path: Path):
    metric_map = MetricMap.of({"instances": {"k2:9404": 2, "kafka-3": 3}})
    contents = {name: query_range(series).encode() for name, (series, _, _) in QUERY_RANGES.items()}
    found = read_each(written(tmp_path, contents), "prom-json", metric_map)
    assert {
        name: ([row[COLUMNS.get(name, 6)] for row in good(rows)], refused(rows))
        for name, rows in found.items()
    } == {name: (fine, problems) for name, (_, fine, problems) in QUERY_RANGES.items()}


def test_a_folder_gives_its_files_of_the_format_and_no_other(tmp_path: Path):
    write_csv([Point()], tmp_path)
    write_parquet([Point()], tmp_path)
    (tmp_path / "_runs").mkdir()
    write_csv([Point()], tmp_path / "_runs")
    assert files_of(tmp_path, "csv") == [f"{tmp_path}/points.csv"]
    assert files_of(tmp_path / "*.csv", "csv") == [f"{tmp_path}/points.csv"]
    with pytest.raises(UsageError, match="holds no prom-json file"):
        files_of(tmp_path, "prom-json")
    with pytest.raises(UsageError, match="does not exist"):
        files_of(tmp_path / "none", "csv")


@pytest.mark.parametrize("pattern", ["*/{../,}{../,}secret.csv", "*/../../secret.csv"])
def test_a_pattern_of_files_stays_below_its_folder(tmp_path: Path, pattern: str):
    (tmp_path / "below" / "a").mkdir(parents=True)
    write_csv([Point()], tmp_path).rename(tmp_path / "secret.csv")
    write_csv([Point()], tmp_path / "below" / "a")
    below = tmp_path / "below"
    with pytest.raises(UsageError, match="leaves the folder in front of it"):
        files_of(below / pattern, "csv")
    assert files_of(below / "{a,b}" / "*.csv", "csv") == [f"{below}/a/points.csv"]


def files_of(folder: Path, kind: str) -> list[str]:
    return file_inputs(SparkSession.active(), [str(folder)], kind, MetricMap()).names


def test_series_alone_are_handed_over_by_a_few(spark: SparkSession):
    """For a limit of bytes Spark weighs the batch for each row."""
    limit = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(limit)
    for kind, within in (("prom-json", f"{2**24}"), ("vm-jsonl", f"{2**24}"), ("csv", before)):
        assert without_broken_files(spark, Inputs(kind), lambda: spark.conf.get(limit)) == within
        assert spark.conf.get(limit) == before
