import threading

import pytest

from app.kafka.off_loop import decoded


def reading_thread(payload: bytearray, version: int) -> int:
    return threading.get_ident()


@pytest.mark.parametrize(("size", "on_the_loop"), [(100, True), (1_000_000, False)])
async def test_a_large_answer_is_read_in_a_thread(size: int, *, on_the_loop: bool):
    where = await decoded(reading_thread, bytearray(size), 1)
    assert (where == threading.get_ident()) is on_the_loop
