"""The figures of a run: what is computed from them, and what is no figure."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import benchmarks.competitors
from benchmarks.competitors.installing import INSTALLERS, installed
from benchmarks.competitors.peers import read_result
from benchmarks.end_to_end import means_ms
from benchmarks.http_connection import Answer, raise_unless_applied, read_metrics, was_not_sent
from benchmarks.loading import load
from benchmarks.measures import Arm, BenchmarkError, Goal, Measure, interleaved, percentile, show
from benchmarks.stack import Progress


def test_a_percentile_is_the_nearest_rank():
    figures = [float(number) for number in range(1, 201)]
    assert percentile(figures, 0.99) == 198
    assert percentile(figures[:100], 0.99) == 99
    assert percentile(figures[:20], 0.99) == 20


def test_figures_of_the_same_round_are_compared_and_a_round_that_was_sat_out_does_not_count():
    ours, theirs = Measure([3.0, 20.0, 107.0, None]), Measure([1.0, 10.0, 100.0, 0.0])
    assert ours.ratio_to(theirs) == 2
    assert ours.excess_over(theirs) == 7
    assert (ours.n, ours.minimum, ours.median, ours.maximum) == (3, 3, 20, 107)
    assert ours.times(10).by_round == [30, 200, 1070, None]


async def test_arms_take_turns_and_warming_up_leaves_no_figures():
    calls: list[str] = []

    def arm(name: str, every: int = 1) -> Arm:
        async def measure() -> float:
            calls.append(name)
            return 1234.5

        return Arm(name, measure, every)

    measures = await interleaved([arm("a"), arm("b"), arm("c", every=2)], rounds=3, warm_up=1)
    assert "".join(calls[-8:]) == "abc" + "ba" + "cab"
    assert [measure.n for measure in measures.values()] == [3, 3, 2]
    assert measures["c"].figures == [1234.5, 1234.5]


def test_figures_have_three_digits_and_a_goal_says_whether_it_is_met():
    figures = [show(item) for item in (0.127, 9.994, 12.34, 123.4, 2_825_421.0)]
    assert figures == ["0.13", "9.99", "12.3", "123", "2,825,421"]
    assert [Goal("a / b", 2.0, found).row()[-1] for found in (1.9, 2.1)] == ["met", "**missed**"]
    least = [Goal("a / b", 0.5, found, at_most=False).row()[-1] for found in (0.6, 0.4)]
    assert least == ["met", "**missed**"]


def test_phases_are_means_of_what_happened_in_between():
    def metrics(count: float, seconds: float) -> str:
        name, labels = "quota_alteration_phase_seconds", '{cluster="default",phase="kafka"}'
        return f"# TYPE {name}\n{name}_count{labels} {count}\n{name}_sum{labels} {seconds}\n"

    before, after = (read_metrics(metrics(*each)) for each in ((2.0, 1.0), (12.0, 1.3)))
    assert means_ms(before, after) == {"Kafka": pytest.approx(30.0)}


def test_what_was_not_applied_or_failed_is_no_figure_and_only_what_was_not_sent_is_repeated():
    raise_unless_applied(Answer(200, b'{"outcome": "applied"}'))
    for answer in (Answer(200, b'{"outcome": "refused"}'), Answer(504, b"{}")):
        with pytest.raises(BenchmarkError, match=r"refused|answered 504"):
            raise_unless_applied(answer)
    assert read_result("a", '{"ms": 1.5, "entities": 3}\n') == (1.5, 3)
    for line in ("", '{"error": "POLICY_VIOLATION"}\n', '{"ms": null, "entities": 1}\n', "[]"):
        with pytest.raises(BenchmarkError, match="a has failed"):
            read_result("a", line)
    assert was_not_sent(Answer(503, b'{"retry": "safe"}'))
    assert not was_not_sent(Answer(503, b'{"retry": "same-key-only"}'))


def test_who_cannot_be_installed_is_left_out_by_name_and_lock_files_name_no_registry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    peers = installed(Progress(), ["kadm", "kafka-python"], INSTALLERS)
    assert [peer.name for peer in peers.present] == ["kafka-python"]
    assert peers.left_out["kadm"] == "there is no `go` on the PATH"
    lock = Path(benchmarks.competitors.__file__).parent / "node" / "package-lock.json"
    packages = json.loads(lock.read_text())["packages"]
    assert not any("resolved" in package for package in packages.values())


class Server:
    """Answers each request once its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.status = b"200 OK"
        self.port = self.answered = 0
        self.first_at = float("inf")

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            self.first_at = min(self.first_at, time.perf_counter())
            await self.gate.wait()
            self.answered += 1
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % self.status)
        writer.close()

    def job(self, lead_s: float = 0.0) -> dict[str, object]:
        requests = [f"GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n" for n in range(3)]
        times = {"rate": 500, "seconds": 0.1, "lead_s": lead_s}
        return {"requests": requests, "connections": 2, "port": self.port, **times}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


async def test_the_latency_of_a_request_counts_from_when_it_was_due(server: Server):
    running = asyncio.create_task(load(server.job()))
    async with asyncio.timeout(30):
        while time.perf_counter() < server.first_at + 0.1:  # until each request is due
            await asyncio.sleep(0)
        server.gate.set()
        result = await running
    assert result.answers == 50
    assert result.max_ms >= result.p99_ms >= result.p50_ms >= 50


async def test_what_is_sent_before_the_window_is_not_counted_and_a_failure_ends_it(server: Server):
    server.gate.set()
    result = await asyncio.wait_for(load(server.job(lead_s=0.1)), 30)
    assert (result.answers, server.answered) == (50, 100)
    server.status = b"500 Broken"
    with pytest.raises(BenchmarkError, match="500"):
        await asyncio.wait_for(load(server.job()), 30)
