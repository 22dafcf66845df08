"""Virtual time of the tests: timers fire in their order and at once, threads are waited for."""

import asyncio
import threading
import time

from tests.testkit.virtual_time import in_virtual_time


@in_virtual_time
async def test_timers_fire_in_their_order_at_the_time_that_they_were_set_for():
    fired = []
    began = time.monotonic()

    async def fire(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        fired.append((name, round(time.monotonic() - began)))

    await asyncio.gather(fire("day", 86_400), fire("hour", 3_600), fire("now", 0))
    assert fired == [("now", 0), ("hour", 3_600), ("day", 86_400)]


@in_virtual_time
async def test_a_time_out_ends_what_never_ends():
    began = time.monotonic()
    try:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()
    except TimeoutError:
        assert round(time.monotonic() - began) == 60
    else:
        raise AssertionError("it has ended")


@in_virtual_time
async def test_no_time_passes_while_a_thread_works():
    go = threading.Event()
    timer = threading.Timer(0.05, go.set)
    timer.start()
    began = time.monotonic()
    async with asyncio.timeout(1):
        assert await asyncio.to_thread(go.wait, 30)
    assert time.monotonic() == began
    timer.join()
