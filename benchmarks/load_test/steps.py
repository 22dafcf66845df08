"""A step: load so many entities through the service, and look at what reading them costs."""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.load_test.asking import Asked, Asking
from benchmarks.progress import Progress
from benchmarks.stack import Stack

IN_ONE_REQUEST: Final = 10_000
"""The controller takes so many changes in one request, and no more."""

_KEY: Final = "producer_byte_rate"
ASKED_FOR_S: Final = 900.0
SHORTEST_PAUSE_S: Final = 1.0
_EXACT_ASKED: Final = 15
_PROBE_USER: Final = "probe"
_KIB_A_MIB: Final = 1024


@dataclass(frozen=True)
class Grown:
    """The figures of one number of entities.

    Attributes:
        entities: That the cluster holds.
        loading: The requests that loaded them since the step before; failed ones included.
        reads: How each kind of read ended, by what it is.
        single: One more alteration of one entity.
        service_mib: The service's resident memory: now, and the most so far.
        broker_mib: The broker's.
        alive: Whether the service answers ``/livez`` after all this.
    """

    entities: int
    loading: Sequence[Asked]
    reads: Mapping[str, Asked]
    single: Asked
    service_mib: tuple[int, int]
    broker_mib: tuple[int, int]
    alive: bool


def grow(stack: Stack, asking: Asking, present: int, wanted: int, progress: Progress) -> Grown:
    """Load entities until there are as many as wanted, and read them with every query."""
    loading = list(load(asking, present, wanted, progress))
    progress.say(f"reading {wanted:,} entities")
    reads = {
        "everything, cold": asking.get("/quotas", max_age_ms=0),
        "everything, unchanged since": asking.get("/quotas", max_age_ms=0),
        "everything, from the image": asking.get("/quotas", max_age_ms=600_000),
        "a page of 10,000": asking.get("/quotas", max_age_ms=600_000, page_size=10_000),
    }
    single = asking.alter(_alterations([_PROBE_USER], value=wanted))
    reads |= {
        "everything, one change later": asking.get("/quotas", max_age_ms=0),
        "one entity, from the broker": _typical(asking, max_age_ms=0),
        "one entity, from the image": _typical(asking, max_age_ms=600_000),
        "resolve, from the image": _resolved(asking),
    }
    return Grown(
        wanted,
        loading,
        reads,
        single,
        _memory_mib(stack.service_pid),
        _memory_mib(stack.broker_pid),
        asking.get("/livez").worked,
    )


def user(number: int) -> str:
    """Return a name as random as a generated one, and as long: 32 hexadecimal digits."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:32]


def load(asking: Asking, present: int, wanted: int, progress: Progress) -> Iterator[Asked]:
    """Load what is missing, and repeat what failed.

    Raises:
        BenchmarkError: Nothing more was taken for a quarter of an hour.
    """
    give_up = time.monotonic() + ASKED_FOR_S
    while present < wanted:
        upper = min(present + IN_ONE_REQUEST, wanted)
        asked = asking.alter(_alterations(map(user, range(present, upper)), value=1_000_000))
        yield asked
        if asked.worked:
            progress.say(f"{upper:,} entities, the last {upper - present:,} in {asked.ms:.0f} ms")
            present = upper
        elif time.monotonic() > give_up:
            raise BenchmarkError(
                f"{present:,} entities are in; no more: {asked.status} {asked.code}"
            )
        else:
            progress.say(f"{present:,} entities; then {asked.status} {asked.code}")
            time.sleep(max(asked.retry_after_s, SHORTEST_PAUSE_S))


def _alterations(users: Iterator[str] | list[str], value: int) -> Mapping[str, Any]:
    ops = [{"key": _KEY, "value": value}]
    alterations = [{"entity": {"user": name}, "ops": ops} for name in users]
    return {"alterations": alterations, "wait": "none"}


def _typical(asking: Asking, *, max_age_ms: int) -> Asked:
    asked = [
        asking.get("/quotas", filter=f"user={user(number)}", strict="true", max_age_ms=max_age_ms)
        for number in range(_EXACT_ASKED)
    ]
    return _median(asked)


def _resolved(asking: Asking) -> Asked:
    asked = [
        asking.get("/quotas/resolve", user=user(number), max_age_ms=600_000)
        for number in range(_EXACT_ASKED)
    ]
    return _median(asked)


def _median(asked: Sequence[Asked]) -> Asked:
    """Return the first failure, or the one in the middle."""
    failed = [item for item in asked if not item.worked]
    return failed[0] if failed else sorted(asked, key=lambda item: item.ms)[len(asked) // 2]


def loaded_ms(grown: Grown) -> float:
    """Return the median milliseconds of a full request of the step; 0 where there was none."""
    worked = [item.ms for item in grown.loading if item.worked]
    return median(worked) if worked else 0.0


def _memory_mib(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {
        name: value.split()[0]
        for name, _, value in (line.partition(":") for line in lines)
        if value.strip()
    }
    return int(kib["VmRSS"]) // _KIB_A_MIB, int(kib["VmHWM"]) // _KIB_A_MIB
