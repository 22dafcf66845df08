"""The run with more and more entities: what is repeated, and what its page says."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from benchmarks import load_test
from benchmarks.load_test import Asked, Asking, Grown, growth_page, load, user
from benchmarks.measures import BenchmarkError
from benchmarks.stack import Progress

OK = Asked(200, "", 4.0, 8.0, 0.1)
BUSY = Asked(503, "cluster-unreachable", 1.0, 1500.0, 0.0, retry_after_s=0.0)


class Answers:
    """Gives one answer after the other, and keeps what was asked."""

    def __init__(self, *answers: Asked) -> None:
        self.answers = list(answers)
        self.sizes: list[int] = []

    def alter(self, body: Mapping[str, Any]) -> Asked:
        self.sizes.append(len(body["alterations"]))
        return self.answers.pop(0)


def loaded(answers: Answers, present: int, wanted: int) -> list[Asked]:
    return list(load(cast("Asking", answers), present, wanted, Progress()))


def grown(**members: Any) -> Grown:
    reads = {"everything, cold": Asked(200, "", 250.0, 1000.0, 10.0), "one entity": OK}
    defaults = {"entities": 100_000, "loading": [OK], "reads": reads, "single": OK}
    memory = {"service_mib": (300, 350), "broker_mib": (900, 1000)}
    return Grown(**{**defaults, **memory, "alive": True, **members})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_test, "SHORTEST_PAUSE_S", 0.0)


def test_a_request_that_failed_is_sent_again_before_the_next():
    answers = Answers(OK, BUSY, OK, OK)
    assert loaded(answers, 0, 25_000) == [OK, BUSY, OK, OK]
    assert answers.sizes == [10_000, 10_000, 10_000, 5_000]


def test_loading_gives_up_after_its_time_and_says_where(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load_test, "ASKED_FOR_S", -1.0)
    with pytest.raises(BenchmarkError, match="10,000 entities are in; no more: 503 cluster-un"):
        loaded(Answers(OK, BUSY), 0, 20_000)


def test_every_user_has_a_name_of_its_own():
    names = {user(number) for number in range(1000)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {32}


def test_the_page_shows_times_sizes_failures_and_memory():
    page = growth_page([("Machine", "small")], [grown(loading=[OK, BUSY])], "")
    assert "| everything, cold | 1,000 (first byte 250; 10.0 MB) |" in page
    assert "| one entity | 8.00 |" in page
    assert "| requests that failed and were repeated | 1: 503 cluster-unreachable |" in page
    assert "| service | 300 (350) |" in page
    assert "Where it ended" not in page


def test_the_page_says_what_broke():
    step = grown(reads={"everything, cold": BUSY}, alive=False, loading=[])
    page = growth_page([], [step], "no more than this")
    assert "| everything, cold | 503 cluster-unreachable after 1,500 |" in page
    assert "| the service is alive | **no** |" in page
    assert page.endswith("## Where it ended\n\nno more than this\n")
    assert step.loaded_ms == 0.0
