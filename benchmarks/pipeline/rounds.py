"""Arms that run in turn in one process, and how long each took."""

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

Answer = TypeVar("Answer")


def run_in_turn(
    arms: Mapping[str, Callable[[], Answer]],
    rounds: int,
    differ: Callable[[Answer, Answer], bool] = operator.ne,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, list[float]], Answer]:
    """Return the seconds of each arm, round by round, and the answer that all have.

    Args:
        rounds: After the first, which is thrown away.
        differ: Whether two answers are not the same.

    Raises:
        RuntimeError: Arms answer differently.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        answers = {}
        for name, run in arms.items():
            begun = time.monotonic()
            answers[name] = run()
            took = time.monotonic() - begun
            say(f"round {number}: {name}: {took:.2f} s")
            if number > 0:
                seconds[name].append(took)
        expected = next(iter(answers.values()))
        if any(differ(answer, expected) for answer in answers.values()):
            message = f"the arms answer differently: {answers}"
            raise RuntimeError(message)
    return seconds, expected


def times_of(seconds: Sequence[float]) -> list[str]:
    """Return the median, the least and the most, as cells of a table."""
    return [f"{of(seconds):.2f}" for of in (median, min, max)]
