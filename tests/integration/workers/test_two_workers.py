"""Two workers: pages go on at either, and each of them shows what both have counted."""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from tests.integration.workers.conftest import Workers
from tests.testkit.kafka import unique
from tests.testkit.outages import until
from tests.testkit.raw_quotas import RawQuotas, entity_of, setting
from tests.testkit.service import STARTS_WITHIN_S

P = "producer_byte_rate"
ENTITIES = 60
GROWING = re.compile(r"(?!process_)\w+(_total|_count|_sum|_bucket)(\{|$)")


@pytest.fixture(scope="module")
def team(broker: LocalKafka) -> Iterator[str]:
    """The beginning of the names of 60 users."""
    prefix = unique("paged")
    names = [f"{prefix}-{number}" for number in range(ENTITIES)]
    with RawQuotas(broker.bootstrap_servers) as raw:
        raw.alter(*(setting({"user": name}, {P: 5.0}) for name in names))
        raw.wait_until(lambda: entity_of({"user": names[-1]}) in raw.everything())
        yield prefix
        raw.alter(*(setting({"user": name}, {P: None}) for name in names))


def page(pair: Workers, team: str, token: str | None) -> dict[str, Any]:
    more = {} if token is None else {"page_token": token}
    parameters = {"filter": f"user^={team}", "page_size": 4, **more}
    answer = pair.request("GET", "/quotas", params=parameters)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def all_pages(pair: Workers, team: str) -> list[dict[str, Any]]:
    pages = [page(pair, team, None)]
    while pages[-1]["next_page_token"] is not None:
        pages.append(page(pair, team, pages[-1]["next_page_token"]))
    return pages


def test_pages_over_new_connections_show_each_entity_once(pair: Workers, team: str) -> None:
    asked = 0
    while asked < 3 or len(answered(pair, "/quotas")) < 2:
        assert asked < 50, "one worker accepts every connection"
        pages = all_pages(pair, team)
        users = [quota["entity"]["user"] for item in pages for quota in item["quotas"]]
        assert users == sorted(f"{team}-{number}" for number in range(ENTITIES))
        asked += 1


def answered(pair: Workers, route: str) -> Counter[int]:
    """Return how many requests each worker has answered, as far as they are logged yet."""
    return Counter(line["worker"] for line in pair.lines() if line.get("route") == route)


def test_connections_that_are_kept_are_dealt_out_to_both(pair: Workers) -> None:
    clients = [httpx.Client(base_url=pair.service.url, timeout=30) for _ in range(24)]
    for client in clients:
        assert client.get("/version").status_code == 200
    for client in clients:
        client.close()
    until(lambda: answered(pair, "/version").total() == len(clients), "an answer is not logged")
    assert set(answered(pair, "/version")) == {1, 2}


def kill(pid: int) -> None:
    """Kill a worker, and wait until no connection can come to it any more.

    Its socket is closed with the last of its threads. Only then its parent may wait for it, and it
    is gone; until then it may look ended already.
    """
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the worker does not end")


def counters(pair: Workers) -> Mapping[str, float]:
    lines = pair.request("GET", "/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if GROWING.match(line))
    return {name: float(value) for name, value in pairs}


LIVEZ = 'http_server_request_duration_seconds_count{method="GET",route="/livez",status="200"}'


def test_counters_never_go_back_not_even_when_a_worker_is_killed(pair: Workers) -> None:
    assert pair.request("GET", "/livez").status_code == 200
    before, served = counters(pair), pair.served()
    began = before[LIVEZ]
    for number in range(6):
        assert pair.request("GET", "/livez").status_code == 200
        now = counters(pair)
        assert [name for name, at in before.items() if now.get(name, -1.0) < at] == []
        assert now[LIVEZ] == began + number + 1
        before = now
        if number == 2:
            kill(pair.pid_of(1))
    until(lambda: pair.served() == served + 1, "the worker does not come back", STARTS_WITHIN_S)
    gauges = pair.request("GET", "/metrics").text
    assert gauges.count("\nprocess_open_fds{") == 2
    assert gauges.count("\nhttp_server_active_requests ") == 1
    assert sorted(re.findall(r'^policy_rules\{worker="(\d)"\}', gauges, re.MULTILINE)) == ["1", "2"]
