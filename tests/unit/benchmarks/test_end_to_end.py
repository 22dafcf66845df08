"""Clients that alter without a pause, and what is made of their figures and the service's own."""

import asyncio
import itertools

import pytest

from benchmarks.end_to_end import Client, PostClient, busy, means_ms
from benchmarks.http_connection import (
    Answer,
    HttpConnection,
    raise_unless_applied,
    read_metrics,
    was_not_sent,
)
from benchmarks.measures import BenchmarkError
from benchmarks.wire import Entities

METRICS = """# TYPE quota_alteration_phase_seconds histogram
quota_alteration_phase_seconds_bucket{{cluster="default",le="+Inf",phase="kafka"}} {kafka}
quota_alteration_phase_seconds_count{{cluster="default",phase="kafka"}} {kafka}
quota_alteration_phase_seconds_sum{{cluster="default",phase="kafka"}} {seconds}
quota_alteration_phase_seconds_count{{cluster="default",phase="tx1"}} 4.0
quota_alteration_phase_seconds_sum{{cluster="default",phase="tx1"}} 0.02
"""


class Recorder(Client):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[Entities, int]] = []
        self.warm = False

    async def warm_up(self) -> None:
        self.warm = True

    async def _timed(self, entity: Entities, value: int) -> float:
        await asyncio.sleep(0)  # as one that waits for an answer
        self.calls.append((entity, value))
        return 2.0

    def close(self) -> None:
        """Have nothing to drop."""


async def test_a_client_alters_its_entities_in_turns_and_never_sets_a_value_twice():
    client, other = Recorder("a"), Recorder("b")
    for _ in range(20):
        await client.alter()
        await other.alter()
    entities = [entity for entity, _ in client.calls]
    assert all(item != following for item, following in itertools.pairwise(entities))
    assert set(entities[:8]) == set(entities)
    assert not set(entities) & {entity for entity, _ in other.calls}
    assert len({value for _, value in (*client.calls, *other.calls)}) == 40
    assert client.altered == dict(client.calls)


async def test_a_window_has_every_alteration_of_every_client():
    clients = [Recorder("a"), Recorder("b")]
    window = await busy(clients, 0.2)
    assert all(client.warm and client.calls for client in clients)
    assert list(window.took_ms) == [2.0] * sum(len(client.calls) for client in clients)
    assert window.seconds >= 0.2


def test_an_alteration_that_was_not_applied_ends_the_run():
    raise_unless_applied(Answer(200, b'{"outcome": "applied"}'))
    with pytest.raises(BenchmarkError, match="refused"):
        raise_unless_applied(Answer(200, b'{"outcome": "refused"}'))
    with pytest.raises(BenchmarkError, match="answered 504"):
        raise_unless_applied(Answer(504, b"{}"))


def test_only_what_was_not_sent_may_be_repeated():
    assert was_not_sent(Answer(503, b'{"retry": "safe"}'))
    assert not was_not_sent(Answer(503, b'{"retry": "same-key-only"}'))
    assert not was_not_sent(Answer(409, b'{"retry": "safe"}'))
    assert not was_not_sent(Answer(200, b'{"outcome": "applied"}'))


class Service(HttpConnection):
    """Answers in turn, the last answer for ever."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self._answers = list(answers)

    async def exchange(self, request: bytes) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


NOT_SENT = Answer(503, b'{"retry": "safe"}')
APPLIED = Answer(200, b'{"outcome": "applied"}')


async def test_a_client_repeats_what_was_not_sent_and_counts_it():
    client = PostClient("a", Service(NOT_SENT, NOT_SENT, APPLIED), "token")
    await client.alter()
    assert client.repeats == 2
    assert len(client.altered) == 1


async def test_a_client_gives_up_a_service_that_sends_nothing():
    client = PostClient("a", Service(NOT_SENT), "token")
    with pytest.raises(BenchmarkError, match="answered 503"):
        await client.alter()


def test_phases_are_means_of_what_happened_in_between():
    before = read_metrics(METRICS.format(kafka=2.0, seconds=1.0))
    after = read_metrics(METRICS.format(kafka=12.0, seconds=1.3))
    assert means_ms(before, after) == {"Kafka": pytest.approx(30.0)}
    assert means_ms({}, before) == {"Kafka": 500, "intent": 5}
