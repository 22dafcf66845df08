"""A response that callers share."""

import asyncio
from contextvars import ContextVar

import pytest
import uvloop

from app.service.runtime.tasks import Cache
from tests.testkit.event_loops import until


class Question:
    """Counts how often it is asked; answers with the number, when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return number


@pytest.fixture
def question() -> Question:
    return Question()


async def test_callers_who_come_together_share_one_question(question: Question):
    cache = Cache(question)
    answers = await asyncio.gather(*(cache.get(60.0) for _ in range(50)))
    assert {answer for answer, _ in answers} == {1}
    assert question.asked == 1


async def test_a_question_carries_nothing_of_the_caller_who_happens_to_ask_it():
    request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

    async def ask() -> str | None:
        return request_id.get()

    request_id.set("r1")
    assert (await Cache(ask).get(0.0))[0] is None


async def test_whoever_gets_an_answer_that_grows_old_has_it_asked_for_again_and_does_not_wait(
    question: Question,
):
    cache = Cache(question, refresh_after_s=0.0)
    await cache.get(60.0)
    question.gate.clear()
    assert (await cache.get(60.0))[0] == 1
    await until(lambda: question.asked == 2)
    question.gate.set()
    await until(lambda: cache._in_flight is None)
    assert (await cache.get(60.0))[0] == 2


async def test_an_answer_that_is_young_enough_is_returned_again(question: Question):
    cache = Cache(question)
    await cache.get(0.0)
    answer, age_s = await cache.get(60.0)
    assert answer == 1
    assert 0 <= age_s < 60


async def test_what_was_asked_before_an_invalidation_is_asked_again(question: Question):
    cache = Cache(question)
    await cache.get(0.0)
    cache.invalidate()
    assert [(await cache.get(60.0))[0] for _ in range(2)] == [2, 2]
    assert question.asked == 2


async def test_with_limit_zero_each_call_asks_anew(question: Question):
    cache = Cache(question)
    assert [(await cache.get(0.0))[0] for _ in range(3)] == [1, 2, 3]


def test_the_coarser_clock_of_uvloop_makes_no_answer_younger():
    async def three_answers() -> list[int]:
        cache = Cache(Question())
        return [(await cache.get(0.0))[0] for _ in range(3)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(three_answers()) == [1, 2, 3]


async def test_with_limit_zero_nobody_gets_what_was_asked_before_the_call(question: Question):
    cache = Cache(question)
    question.gate.clear()
    early = asyncio.create_task(cache.get(0.0))
    await until(lambda: question.asked == 1)
    late = [asyncio.create_task(cache.get(0.0)) for _ in range(20)]
    patient = asyncio.create_task(cache.get(60.0))
    await asyncio.sleep(0)
    question.gate.set()
    assert (await early)[0] == 1
    assert (await patient)[0] == 1
    assert {answer for answer, _ in await asyncio.gather(*late)} == {2}
    assert question.asked == 2


async def test_a_caller_who_goes_away_does_not_take_the_answer_from_the_others(question: Question):
    cache = Cache(question)
    question.gate.clear()
    first = asyncio.create_task(cache.get(60.0))
    second = asyncio.create_task(cache.get(60.0))
    await until(lambda: question.asked == 1)
    first.cancel()
    question.gate.set()
    assert (await second)[0] == 1


async def test_a_failure_reaches_all_who_share_it_and_is_not_cached(question: Question):
    cache = Cache(question)
    question.error = LookupError("no")
    results = await asyncio.gather(*(cache.get(60.0) for _ in range(3)), return_exceptions=True)
    assert results == [question.error] * 3
    question.error = None
    assert (await cache.get(60.0))[0] == 2


async def test_a_failed_refresh_leaves_the_cached_answer(question: Question):
    cache = Cache(question)
    await cache.get(0.0)
    question.error = LookupError("no")
    task = cache.refresh().task
    await asyncio.wait({task})
    assert (await cache.get(60.0))[0] == 1


async def test_closing_stops_the_question_in_flight(question: Question):
    cache = Cache(question)
    question.gate.clear()
    task = cache.refresh().task
    await until(lambda: question.asked == 1)
    await cache.close()
    assert task.cancelled()


async def test_an_answer_that_is_not_stored_is_shared_by_those_who_wait_for_it(question: Question):
    cache = Cache(question, keeps_answer=False)
    question.gate.clear()
    waiting = [asyncio.create_task(cache.get(60.0)) for _ in range(10)]
    await until(lambda: question.asked == 1)
    question.gate.set()
    assert {answer for answer, _ in await asyncio.gather(*waiting)} == {1}
    assert (await cache.get(60.0))[0] == 2
