"""A broker's own throttle in virtual time, and a producer that waits for each answer.

A port of what decides how long a connection is muted, a request at a time. The model of
``app.domain.throttling`` knows an average and a maximum of each minute; this knows each request.

Source: ``SampledStat``, ``WindowedSum``, ``Rate``, ``QuotaUtils`` and ``ClientQuotaManager`` of
Kafka 4.3.1: 11 samples of one second, and one more that is being retired.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

WINDOW_MS: Final = 1_000
SAMPLES: Final = 11
MINUTE_MS: Final = 60_000
SCRAPES_MS: Final = 15_000
"""How far apart scrapes are, as those of ``collect``."""

ROUND_TRIP_MS: Final = 100
REQUEST_BYTES: Final = 1_000.0
"""The most that a request carries; ten of them in a second are more than any client here wants."""


class Rate:
    """A rate over the last samples."""

    def __init__(self) -> None:
        self._samples: list[list[float]] = []
        """Of each its start, its last event, and its sum; the newest is the last."""

    def record(self, value: float, now: float) -> None:
        """Add bytes."""
        if not self._samples or now - self._samples[-1][0] >= WINDOW_MS:
            self._samples.append([now, now, 0.0])
            del self._samples[: -SAMPLES - 1]
        self._samples[-1][1] = now
        self._samples[-1][2] += value

    def window_ms(self, now: float) -> float:
        """Return over how long the rate is: no less than ten full windows."""
        self._samples = [each for each in self._samples if now - each[1] < SAMPLES * WINDOW_MS]
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = SAMPLES - 1 - math.floor(elapsed / WINDOW_MS)
        return elapsed + max(missing, 0) * WINDOW_MS

    def measure(self, now: float) -> float:
        """Return bytes per second."""
        window = self.window_ms(now)
        return sum(each[2] for each in self._samples) / (window / 1000)


@dataclass(slots=True)
class Run:
    """What was measured, minute by minute.

    Attributes:
        rates: The scrapes of the broker's rate, bytes/s.
        throttled_s: For how long the connection was muted.
    """

    rates: list[list[float]] = field(default_factory=list)
    throttled_s: list[float] = field(default_factory=list)

    def minutes(self) -> list[tuple[float, float]]:
        """Return the average and the maximum of each minute's scrapes."""
        return [(sum(rates) / len(rates), max(rates)) for rates in self.rates]


Traffic = Callable[[float], float]
"""What a client wants to send at a time of so many seconds, bytes/s."""


def produce(wanted: Traffic, minutes: int, limit: float = math.inf) -> Run:
    """Let a producer send what it wants, as fast as the broker lets it.

    Args:
        wanted: Its traffic.
        minutes: For how long.
        limit: Bytes/s; without it nothing is throttled.
    """
    run = Run([[] for _ in range(minutes)], [0.0] * minutes)
    rate, now, backlog, scraped = Rate(), 0.0, 0.0, SCRAPES_MS
    muted_until = 0.0
    while now < minutes * MINUTE_MS:
        now += ROUND_TRIP_MS
        backlog += wanted(now / 1000) * ROUND_TRIP_MS / 1000
        while scraped <= now and scraped < minutes * MINUTE_MS:
            run.rates[scraped // MINUTE_MS].append(rate.measure(scraped))
            scraped += SCRAPES_MS
        if now < muted_until or not backlog:
            continue
        sent = min(backlog, REQUEST_BYTES)
        backlog -= sent
        rate.record(sent, now)
        measured = rate.measure(now)
        if measured > limit:
            # Source: `QuotaUtils.throttleTime`.
            delay = round((measured - limit) / limit * rate.window_ms(now))
            _mute(run, now, now + delay)
            muted_until = now + delay
    return run


def _mute(run: Run, begin: float, end: float) -> None:
    """Count a delay in the minutes that it is in."""
    while begin < end:
        minute = int(begin // MINUTE_MS)
        if minute >= len(run.throttled_s):
            return
        until = min(end, (minute + 1) * MINUTE_MS)
        run.throttled_s[minute] += (until - begin) / 1000
        begin = until


def steady(rng: random.Random, limit: float) -> Traffic:
    """Return traffic near the limit, which changes its rate every few minutes."""
    levels = [limit * rng.uniform(0.75, 1.1) for _ in range(64)]
    return lambda at: levels[int(at // 240) % len(levels)]


def wave(rng: random.Random, limit: float) -> Traffic:
    """Return traffic that rises above the limit and falls below it once in an hour or so."""
    period, height, phase = rng.uniform(2400, 4800), rng.uniform(0.3, 0.9), rng.uniform(0, 6.3)
    middle = limit * rng.uniform(0.7, 1.0)
    return lambda at: middle * (1 + height * math.sin(2 * math.pi * at / period + phase))


def spikes(rng: random.Random, limit: float) -> Traffic:
    """Return traffic far below the limit, with some minutes of three to six times the limit."""
    base = limit * rng.uniform(0.2, 0.5)
    spans = [(start, start + rng.uniform(60, 120)) for start in rng.sample(range(0, 2400, 100), 3)]
    high = [(*span, limit * rng.uniform(3, 6)) for span in spans]
    return lambda at: max([base, *(rate for begin, end, rate in high if begin <= at < end)])


def bursts(rng: random.Random, limit: float) -> Traffic:
    """Return traffic that is on somewhere in each minute, far above the limit, else off."""
    on, high = rng.uniform(20, 26), limit * rng.uniform(1.8, 2.2)
    starts = [rng.uniform(0, 60 - on) for _ in range(64)]
    return lambda at: high if 0 <= at % 60 - starts[int(at // 60) % 64] < on else 0.0


KINDS: Final = {"steady": steady, "wave": wave, "spikes": spikes, "bursts": bursts}
