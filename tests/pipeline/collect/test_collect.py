"""``collect`` as its users run it, against endpoints of this process."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.pipeline.commands.collect import CollectedFiles, Scrape
from tests.pipeline.conftest import Command
from tests.testkit.http import closed_port, serving

DEADLINE_S = 240
COLLECT = [sys.executable, "-m", "app.pipeline.main", "collect"]
TEXT = 'kafka_server_quota_byte_rate{resource="Produce",user="a%20b",clientId="\\"x, y\\""} 7\n'


@contextmanager
def exporter(
    status: int = 200, text: str = TEXT, hang: threading.Event | None = None
) -> Iterator[str]:
    """Serve a text below /metrics and nothing elsewhere; with ``hang`` only when it is set."""

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        if hang is not None:
            hang.wait(DEADLINE_S)
        return (status if request.path == "/metrics" else 404), text

    with serving(answer) as url:
        try:
            yield url
        finally:
            if hang is not None:
                hang.set()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with exporter() as url:
        yield url


def rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "collected").iterdir())
    assert all(file.name.endswith(".parquet") for file in files)
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_brokers_that_are_down_or_slow_do_not_stop_the_others(
    command: Command, url: str, tmp_path: Path
):
    with (
        closed_port() as port,
        exporter(hang=threading.Event()) as slow,
        exporter(status=500) as broken,
    ):
        down = f"http://127.0.0.1:{port}"
        urls = enumerate([url, down, slow, broken, f"{url}/nowhere"], start=1)
        endpoints = [argument for n, item in urls for argument in ("--endpoint", f"{n}={item}")]
        sizes = ["--interval", "5", "--duration", "10", "--cluster", "c", "--json"]
        done = command("collect", *endpoints, *sizes, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = rows(tmp_path)
    assert report["rows_out"] == len(found)
    ups = [row for row in found if row["metric"] == "up"]
    assert report["scrapes"] == len(ups) >= 5
    assert {row["broker_id"]: row["value"] for row in ups} == {1: 1, 2: 0, 3: 0, 4: 0, 5: 0}
    assert {row["cluster_id"] for row in found} == {"c"}
    points = [row for row in found if row["metric"] != "up"]
    assert {row["broker_id"] for row in points} == {1}
    tags = {(row["metric"], row["resource"], row["user"], row["client_id"]) for row in points}
    assert tags == {("kafka_server_quota_byte_rate", "Produce", "a%20b", '"x, y"')}
    for sentence in (
        "broker 1 answers",
        "broker 2 cannot be reached",
        "broker 3 does not answer within 5 s",
        "broker 4 answers with status 500",
    ):
        assert sentence in done.stderr


def test_scrapes_are_aligned_to_the_clock(command: Command, url: str, tmp_path: Path):
    sizes = ("--interval", "1.5", "--duration", "6")
    done = command("collect", "--endpoint", f"1={url}", *sizes, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    times = sorted({row["ts"].timestamp() for row in rows(tmp_path)})
    assert all(at % 1.5 == 0 for at in times)
    assert 0 < times[-1] - times[0] < 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_collected(url: str, tmp_path: Path, number: signal.Signals):
    arguments = ["--endpoint", f"1={url}", "--interval", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*COLLECT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert any("broker 1 answers" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "stopped; what was collected is written" in stderr
    assert {row["metric"] for row in rows(tmp_path)} == {"up", "kafka_server_quota_byte_rate"}


def test_a_file_is_written_each_minute_and_is_complete(
    command: Command, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def hasty(_interval: float, _duration: float | None) -> AsyncIterator[float]:
        for minute in range(3):
            yield 60.0 * minute

    monkeypatch.setattr("app.pipeline.commands.collect.ticks", hasty)
    done = command("collect", "--endpoint", f"1={url}", "--interval", "60", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "collected").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [2, 2, 2]


def test_the_files_of_an_hour_become_a_single_file_an_hour_after_it(tmp_path: Path):
    files = CollectedFiles(tmp_path, "c")
    for minute in (58, 59, 60, 61, 119, 120):
        files.add([Scrape(60.0 * minute + second, 1) for second in (0, 30)])
        if minute != 59:
            files.write()
    names = [file.name for file in sorted((tmp_path / "collected").iterdir())]
    assert [name.rpartition("-")[0] for name in names] == [
        *["hour-19700101T00"],
        *["hour-19700101T01"] * 3,
        "hour-19700101T02",
    ]
    times = [int(row["ts"].timestamp()) // 30 for row in rows(tmp_path)]
    assert sorted(times) == [
        2 * minute + half for minute in (58, 59, 60, 61, 119, 120) for half in (0, 1)
    ]
    assert pq.read_metadata(tmp_path / "collected" / names[0]).num_rows == 4
    assert files.counts["rows_out"] == 12


def test_no_endpoint_that_ever_answers_is_an_error_after_the_record_is_written(
    command: Command, tmp_path: Path
):
    sizes = ["--interval", "0.5", "--duration", "0.5"]
    with closed_port() as port:
        down = f"http://127.0.0.1:{port}/metrics"
        done = command("collect", "--endpoint", f"1={down}", *sizes, "--out", str(tmp_path))
    assert done.returncode == 5
    assert f"No endpoint ever answered: look at {down}." in done.stderr
    assert [row["value"] for row in rows(tmp_path)] == [0.0]


def test_a_scrape_without_quota_metrics_says_so(command: Command, tmp_path: Path, url: str):
    with exporter(text="jvm_threads_current 77.0\n") as other:
        done = command(
            *("collect", "--endpoint", f"1={url}", "--endpoint", f"2={other}", "--json"),
            *("--interval", "1", "--duration", "1", "--out", tmp_path),
        )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "collect: broker 1 answers" in lines
    assert (
        "collect: broker 2 answers. No quota metrics in this scrape: no quotas are set, or the "
        "exporter has no rule for them" in lines
    )
    report = json.loads(done.stdout)
    assert report["scrapes_up"] == 2 * report["scrapes_with_quotas"]


def test_a_line_that_is_no_metric_is_named_by_its_number(command: Command, tmp_path: Path):
    with exporter(text='up 1\nkafka_server_quota_byte_rate{user="secret"} x\n') as broken:
        done = command(
            *("collect", "--endpoint", f"1={broken}", "--interval", "1", "--duration", "1"),
            *("--out", tmp_path),
        )
    assert "Prometheus text (line 2 is not a metric)" in done.stderr
    assert "secret" not in done.stderr
