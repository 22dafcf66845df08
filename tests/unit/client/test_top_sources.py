"""Where ``top`` gets rates from: options, the environment, a profile, a Prometheus."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.testkit.http import serving
from tests.unit.client.conftest import Reply, Run

P: Final = "producer_byte_rate"
LIMITS: Final = Reply(200, {"results": [{"quotas": {P: {"value": 100}}}]})
SCRAPE: Final = 'kafka_server_produce_byte_rate{user="alice",client_id="etl"} 90\n'

SERIES: Final = [
    ({"user": "alice", "client_id": "etl", "instance": "b:9404", "broker_id": "2"}, "90"),
    ({"user": "alice", "client_id": "etl", "instance": "c:9404", "broker_id": "1"}, "50"),
    ({"user": "al%20ice", "clientid": "", "instance": "broker-3:9404"}, "NaN"),
]


@contextmanager
def prometheus(series: list[tuple[dict[str, str], str]]) -> Iterator[tuple[str, list[Any]]]:
    """Serve what Prometheus answers; give its address and what it was asked."""
    name, asked = "kafka_server_produce_byte_rate", list[Any]()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        url = urlsplit(request.path)
        asked.append((url.path, parse_qs(url.query), request.headers.get("Authorization")))
        names = ["up", "kafka_server_other_total", *([name] if series else [])]
        vector = [
            {"metric": {"__name__": name, **labels}, "value": [1.5, value]}
            for labels, value in series
        ]
        data = names if url.path.endswith("/values") else {"resultType": "vector", "result": vector}
        return 200, json.dumps({"status": "success", "data": data})

    with serving(answer) as url:
        yield url, asked


def rows(ran: Any) -> list[tuple[str, Any, float]]:
    assert (ran.code, ran.err) == (0, "")
    return [(row["user"], row["broker"], row["use"]) for row in json.loads(ran.out)["rows"]]


def test_top_asks_prometheus_for_the_quota_metrics_that_it_has(run: Run, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    with prometheus(SERIES) as (url, asked):
        options = f"--prometheus {url}/api/v1 --prometheus-token-file {token}"
        ran = run(f"top {options} --output json", LIMITS)
    assert rows(ran) == [("alice", 2, 0.9)]
    assert [path for path, _, _ in asked] == ["/api/v1/label/__name__/values", "/api/v1/query"]
    assert asked[1][1] == {"query": ['{__name__=~"kafka_server_produce_byte_rate"}']}
    assert {authorization for _, _, authorization in asked} == {"Bearer secret"}


def test_a_broker_without_a_number_has_the_name_of_its_instance(run: Run):
    with prometheus([({**SERIES[2][0], "user": "alice"}, "7")]) as (url, _):
        assert rows(run(f"top --prometheus {url} --output json", LIMITS)) == [
            ("alice", "broker-3:9404", 0.07)
        ]


def test_a_prometheus_that_has_no_quotas_says_so(run: Run):
    with prometheus([]) as (url, _):
        ran = run(f"top --prometheus {url}", Reply(200, {"results": []}))
    assert ran.code == 0
    assert "No quota metrics in Prometheus: no quotas are set, or the exporter" in ran.err


@pytest.mark.parametrize("text", ["no JSON", '{"data": 5}', '{"status": "error"}'])
def test_what_is_no_prometheus_is_unreachable(run: Run, text: str):
    with serving(lambda _: (200, text)) as url:
        assert run(f"top --prometheus {url}").code == 5
    with serving(lambda _: (503, text)) as url:
        assert run(f"top --prometheus {url}").code == 5
    assert run("top --prometheus http://127.0.0.1:1").code == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("", "top needs --endpoint BROKER_ID=URL of each broker, or --prometheus URL"),
        ("--prometheus ftp://x", "--prometheus is no address such as"),
        ("--prometheus http://u:hidden@x", "--prometheus holds no user and password"),
        ("--prometheus http://x --endpoint 1=http://x", "--endpoint or --prometheus, not both"),
        ("--prometheus-token-file x", "--prometheus-token-file needs --prometheus"),
    ],
)
def test_a_source_that_cannot_be_used_is_reported(run: Run, options: str, sentence: str):
    ran = run(f"top {options}")
    assert (ran.code, sentence in ran.err, "hidden" in ran.err) == (2, True, False), ran.err


def test_the_nearest_of_options_environment_and_profile_counts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "kafka-client-quotas"
    folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile = folder / "config.toml"
    with prometheus(SERIES) as (url, _), serving(lambda _: (200, SCRAPE)) as metrics:
        top = "top --output json"
        profile.write_text(f'profile = "a"\n[profiles.a]\nprometheus = "{url}"\n')
        assert rows(run(top, LIMITS)) == [("alice", 2, 0.9)]
        monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_ENDPOINTS", f"7={metrics},8={metrics}")
        assert rows(run(top, LIMITS)) == [("alice", 7, 0.9)]
        assert rows(run(f"{top} --prometheus {url}", LIMITS)) == [("alice", 2, 0.9)]
        assert rows(run(f"{top} --endpoint 9={metrics}", LIMITS)) == [("alice", 9, 0.9)]
        monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_ENDPOINTS", f"7={metrics},x")
        ran = run(top)
        assert (ran.code, "endpoints: 'x' is not as in 1=http://broker-1" in ran.err) == (2, True)
        monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_PROMETHEUS", url)
        assert "Both endpoints and prometheus are set" in run(top).err


@pytest.mark.parametrize(
    ("options", "me", "use"),
    [("", "id-2", 0.5), ("--cluster b", "x", 0.5), ("--cluster a", "x", 0.9)],
)
def test_of_several_clusters_in_prometheus_one_is_taken(
    run: Run, options: str, me: str, use: float
):
    series = [
        ({"user": "alice", "broker_id": "1", "cluster": "a"}, "90"),
        ({"user": "alice", "broker_id": "1", "cluster": "b" if options else "id-2"}, "50"),
    ]
    with prometheus(series) as (url, _):
        words = f"top --prometheus {url} --output json {options}"
        assert rows(run(words, Reply(200, {"cluster_id": me}), LIMITS)) == [("alice", 1, use)]
        other = run(f"top --prometheus {url} --cluster c", Reply(200, {"cluster_id": "x"}))
    assert other.code == 2
    assert "Prometheus has quotas of the clusters a, " in other.err
