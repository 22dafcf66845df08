"""A server with Prometheus' API is asked for each quota metric and hour, and says why it fails."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pyspark.sql import SparkSession

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.ingest import prometheus
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.prometheus import (
    MOST_POINTS,
    Server,
    add_prometheus_options,
    queries_of,
    server_inputs,
    server_of,
    spans_of,
)
from app.pipeline.ingest.read import read_points
from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import NOON, good, rows_of
from tests.testkit.event_loops import Silent, served
from tests.testkit.http import closed_port, serving

AT = int(NOON.timestamp())
HOUR_MS = 3_600_000
RATE = "kafka_server_quota_byte_rate"
SECRET = "s3cret"


class FakeApi:
    """Answers as Prometheus does, from samples in memory.

    Attributes:
        samples: Of each series: its labels as JSON, times in seconds and values.
        asked: The path, query and credential of each request.
        refusals: Status, headers and text of the first answers to ``query_range``.
        extra: What ``query_range`` says beside its data.
    """

    def __init__(self, *series: tuple[Mapping[str, str], Mapping[int, float]]) -> None:
        self.series = series
        self.asked: list[tuple[str, dict[str, str], str | None]] = []
        self.refusals: list[tuple[int, dict[str, str], str]] = []
        self.extra: dict[str, Any] = {}

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """Return what stands below ``data``."""
        if path == "/api/v1/label/__name__/values":
            return sorted({labels["__name__"] for labels, _ in self.series})
        if path == "/api/v1/label/job/values":
            return sorted({labels["job"] for labels, _ in self._matching(query["match[]"])})
        assert path == "/api/v1/query_range"
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        # A server with 11,000 points or more of a series refuses.
        assert (end - start) / step + 1 <= MOST_POINTS
        result = [
            {
                "metric": labels,
                "values": [
                    [at, str(value)]
                    for at, value in samples.items()
                    if start <= at <= end and (at - start) % step == 0
                ],
            }
            for labels, samples in self._matching(query["query"])
        ]
        return {"resultType": "matrix", "result": [item for item in result if item["values"]]}

    def _matching(self, selector: str) -> list[tuple[Mapping[str, str], Mapping[int, float]]]:
        """Return the series whose name a selector has, before the braces or in quotes."""
        return [
            item for item in self.series if re.search(rf'(^|"){item[0]["__name__"]}\b', selector)
        ]


@pytest.fixture
def api() -> Iterator[tuple[FakeApi, str]]:
    """Two brokers of a job, and what is of neither."""
    labels = {"job": "kafka", "resource": "Produce", "user": "a%20b", "clientId": "etl"}
    minutes = {AT + 15 * n: float(n) for n in range(-8, 480)}
    fake = FakeApi(
        ({"__name__": RATE, "broker": "1", **labels}, minutes),
        ({"__name__": RATE, "broker": "2", **labels}, {AT + 15: 7.0, AT + 7_200: 9.0}),
        ({"__name__": "up", "job": "kafka", "broker": "1"}, dict.fromkeys(minutes, 1.0)),
        ({"__name__": "node_load1", "job": "node"}, minutes),
    )

    class Handler(Silent, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(address.query).items()}
            path = address.path.removeprefix("/select/0/prometheus")
            fake.asked.append((path, query, self.headers["Authorization"]))
            status, headers, text = 200, {}, ""
            if path.endswith("query_range") and fake.refusals:
                status, headers, text = fake.refusals.pop(0)
            else:
                document = {"status": "success", "data": fake.answer(path, query), **fake.extra}
                text = json.dumps(document)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

    with served(Handler) as url:
        yield fake, url


def options_of(*words: str | Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_prometheus_options(parser)
    return parser.parse_args(list(map(str, words)))


def ingested(command: Command, url: str, out: Path, *options: str | Path) -> Any:
    """Ingest the hours of noon and one o'clock; return what the command did."""
    return command(
        *("ingest", "--format", "prometheus", "--input", url, "--out", out, "--cluster", "c"),
        *("--from", "2026-11-21T12:00Z", "--to", "2026-11-21T14:00Z", "--json", *options),
    )


def test_each_metric_and_hour_is_asked_for_once_and_again_where_a_refusal_passes(
    api: tuple[FakeApi, str],
    spark_command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    fake, url = api
    monkeypatch.setattr(prometheus, "_PAUSES_S", (0.0, 0.0, 0.0))
    refusals = [(503, {"Retry-After": "0"}, "busy"), (429, {}, ""), (502, {}, "<html>")]
    fake.refusals = list(refusals)
    done = ingested(spark_command, f"{url}/select/0/prometheus/", tmp_path)
    assert done.returncode == 0, done.stderr
    asked = [query for path, query, _ in fake.asked if path == "/api/v1/query_range"]
    assert len(asked) == 4 + len(refusals)
    spans = {(query["query"], float(query["start"]), float(query["end"])) for query in asked}
    rate, up = f'{{__name__="{RATE}"}}', 'up{job=~"kafka"}'
    assert spans == {
        (query, AT + hour, AT + hour + 3_585.0) for query in (rate, up) for hour in (0, 3_600)
    }
    report = json.loads(done.stdout)
    assert (report["inputs"], report["quarantined"]) == (4, 0)
    assert report["used"] == {"rate": 481, "up": 480}


@pytest.mark.small
def test_points_are_read_with_their_names_and_times(api: tuple[FakeApi, str], spark: SparkSession):
    _, url = api
    rules = Rules(since_us=AT * 1_000_000, until_us=(AT + 3_600) * 1_000_000)
    inputs = server_inputs([Server(url)], rules, 15_000)
    assert inputs.names == [f"{url} {name} 2026-11-21T12:00:00Z" for name in (RATE, "up")]
    points = good(rows_of(read_points(spark, inputs, rules)))
    rate = ("producer_byte_rate", "rate", "a b", "etl")
    assert len(points) == 481
    assert points[:2] == [(0, 1, *rate, 0, ""), (15, 1, *rate, 1, "")]
    assert (15, 2, *rate, 7, "") in points


def test_a_step_that_would_make_too_many_points_takes_several_requests():
    spans = list(spans_of(0, HOUR_MS, 100))
    assert [(last - first) // 100 + 1 for first, last in spans] == [11_000, 11_000, 11_000, 3_000]
    assert [first for first, _ in spans[1:]] == [last + 100 for _, last in spans[:-1]]


def test_points_are_multiples_of_the_step_within_the_period():
    # From 00:59:50 to 02:00:01, by 15 s.
    assert list(spans_of(HOUR_MS - 10_000, 2 * HOUR_MS + 1_000, 15_000)) == [
        (HOUR_MS, 2 * HOUR_MS - 15_000),
        (2 * HOUR_MS, 2 * HOUR_MS),
    ]


def test_a_token_and_a_password_are_sent_and_printed_nowhere(
    api: tuple[FakeApi, str], spark_command: Command, tmp_path: Path
):
    fake, url = api
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    files: Mapping[str, tuple[str | Path, ...]] = {
        f"Bearer {SECRET}": ("--prometheus-token-file", tmp_path / "secret"),
        "Basic YWxpY2U6czNjcmV0": (
            *("--prometheus-user", "alice"),
            *("--prometheus-password-file", tmp_path / "secret"),
        ),
    }
    for credential, options in files.items():
        fake.asked.clear()
        done = ingested(spark_command, url, tmp_path / "out", "--explain", *options)
        assert done.returncode == 0, done.stderr
        assert {each for _, _, each in fake.asked} == {credential}
        for text in (SECRET, credential):
            assert text not in done.stdout + done.stderr
    assert SECRET not in repr(
        server_of(url, options_of("--prometheus-token-file", tmp_path / "secret"))
    )


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (
            (422, {}, '{"status": "error", "error": "query would load too many samples"}'),
            "answers 422: query would load too many samples.",
        ),
        ((200, {}, "<html>"), "answers something else than Prometheus' API"),
        ((200, {}, '{"status": "success"}'), "answers something else than Prometheus' API"),
    ],
)
def test_a_query_that_fails_says_why(
    api: tuple[FakeApi, str],
    spark_command: Command,
    tmp_path: Path,
    refusal: tuple[int, dict[str, str], str],
    sentence: str,
):
    fake, url = api
    fake.refusals = [refusal]
    done = ingested(spark_command, url, tmp_path)
    assert done.returncode == 5
    assert sentence in done.stderr.splitlines()[-1]


def test_an_incomplete_answer_is_none(
    api: tuple[FakeApi, str], spark_command: Command, tmp_path: Path
):
    fake, url = api
    fake.extra = {"isPartial": True}
    done = ingested(spark_command, url, tmp_path)
    assert done.returncode == 5
    assert "incompletely: a node of it is missing." in done.stderr.splitlines()[-1]


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "_PAUSES_S", (0.0,))
    with closed_port() as port, pytest.raises(InfrastructureError, match="cannot be reached"):
        queries_of(Server(f"http://127.0.0.1:{port}"), 0, 1, 15_000)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.small
def test_a_credential_that_is_no_good_is_wrong_usage(status: int):
    with (
        serving(lambda _: (status, "no")) as url,
        pytest.raises(UsageError, match=rf"answers {status}: give --prometheus-token-file"),
    ):
        queries_of(Server(url), 0, 1, 15_000)


def test_a_server_without_quota_metrics_says_what_that_may_mean(
    api: tuple[FakeApi, str], spark_command: Command, tmp_path: Path
):
    fake, url = api
    fake.series = fake.series[3:]
    done = ingested(spark_command, url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no quotas are set, or the exporter has no rule for them" in done.stderr


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("prometheus:9090", "is not the address of a server"),
        ("http://a:b@prometheus:9090", "leave user and password out"),
        ("http://prometheus:9090?x=1", "is not the address of a server"),
    ],
)
@pytest.mark.small
def test_an_address_that_is_none_is_refused(uri: str, sentence: str):
    with pytest.raises(UsageError, match=sentence) as raised:
        server_of(uri, options_of())
    assert "a:b" not in str(raised.value)


@pytest.mark.small
def test_credentials_that_do_not_belong_together_are_refused(tmp_path: Path):
    file = tmp_path / "secret"
    file.write_text(SECRET)
    url = "http://prometheus:9090"
    with pytest.raises(UsageError, match="not both"):
        server_of(url, options_of("--prometheus-token-file", file, "--prometheus-user", "alice"))
    with pytest.raises(UsageError, match="belong together"):
        server_of(url, options_of("--prometheus-user", "alice"))
    file.write_text(f"{SECRET}\nx\n")
    with pytest.raises(UsageError, match="one line") as raised:
        server_of(url, options_of("--prometheus-token-file", file))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("step", ["0s", "61s", "2m", "15", "1h", ""])
@pytest.mark.small
def test_a_step_is_a_duration_of_at_most_a_minute(step: str):
    with pytest.raises(argparse.ArgumentError, match="is not a duration"):
        options_of("--step", step)


@pytest.mark.small
def test_the_period_is_needed():
    with pytest.raises(UsageError, match="give --from and --to"):
        queries_of(Server("http://127.0.0.1:1"), None, 1, 15_000)
