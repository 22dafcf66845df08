"""``python -m benchmarks.load_test``: more and more entities, until something breaks."""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from app.localdev.local_directory import LocalDevError
from benchmarks.competitors.peers import Peers
from benchmarks.measures import BenchmarkError, grid, show
from benchmarks.report import environment, environment_table
from benchmarks.stack import Progress, Stack, running_stack

_SIZES: Final = (10_000, 100_000, 300_000, 1_000_000)
_HEAP: Final = "6g"
_PAGE: Final = Path("benchmarks/pages/growth.md")
_PATIENCE_S: Final = 300.0
_IN_ONE_REQUEST: Final = 10_000
"""The controller takes so many changes in one request, and no more."""

ASKED_FOR_S: Final = 900.0
SHORTEST_PAUSE_S: Final = 1.0
_EXACT_ASKED: Final = 15


@dataclass(frozen=True)
class Asked:
    """How a request ended.

    Attributes:
        status: Of the answer; 0 where none came or its body was cut.
        code: Of the problem, or why there was no answer; empty after a success.
        first_ms: Until the first byte of the body, in milliseconds.
        ms: Until the last.
        megabytes: Of the body.
        retry_after_s: When the service wants to be asked again; 0 where it does not say.
    """

    status: int
    code: str
    first_ms: float
    ms: float
    megabytes: float
    retry_after_s: float = 0.0

    @property
    def worked(self) -> bool:
        """Whether it was answered as asked."""
        return self.status == httpx.codes.OK


class Asking:
    """One caller of the service, who notes how each request ended."""

    def __init__(self, service: httpx.Client) -> None:
        self._service = service

    def get(self, path: str, **parameters: str | int) -> Asked:
        """Ask, read the whole answer, and keep none of it."""
        return self._asked("GET", path, params=parameters)

    def alter(self, body: Mapping[str, Any]) -> Asked:
        """Send one alteration."""
        return self._asked("POST", "/quotas/alterations", json=body)

    def _asked(self, method: str, path: str, **arguments: Any) -> Asked:
        begun = first = time.perf_counter()
        size, status, code, retry_after_s = 0, 0, "", 0.0
        try:
            with self._service.stream(method, path, **arguments) as answer:
                problem: list[bytes] = []
                for chunk in answer.iter_bytes():
                    first = time.perf_counter() if not size else first
                    size += len(chunk)
                    if answer.status_code != httpx.codes.OK:
                        problem.append(chunk)
                status = answer.status_code
                retry_after_s = float(answer.headers.get("Retry-After", 0))
                if status != httpx.codes.OK:
                    code = str(json.loads(b"".join(problem))["code"])
        except httpx.HTTPError as error:
            status, code = 0, type(error).__name__
        first_ms, ms = (first - begun) * 1000, (time.perf_counter() - begun) * 1000
        return Asked(status, code, first_ms, ms, size / 1e6, retry_after_s)


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

    @property
    def loaded_ms(self) -> float:
        """The median milliseconds of a full request of the step; 0 where there was none."""
        return median([item.ms for item in self.loading if item.worked] or [0.0])

    @property
    def failures(self) -> str:
        """How many requests failed, and with which codes."""
        codes = [f"{item.status} {item.code}" for item in self.loading if not item.worked]
        return f"{len(codes)}: {', '.join(sorted(set(codes)))}" if codes else "0"


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
    single = asking.alter(_alterations(["probe"], value=wanted))
    users = [user(number) for number in range(_EXACT_ASKED)]

    def exact(age: int) -> Asked:
        return _typical(
            asking.get("/quotas", filter=f"user={name}", strict="true", max_age_ms=age)
            for name in users
        )

    reads |= {
        "everything, one change later": asking.get("/quotas", max_age_ms=0),
        "one entity, from the broker": exact(0),
        "one entity, from the image": exact(600_000),
        "resolve, from the image": _typical(
            asking.get("/quotas/resolve", user=name, max_age_ms=600_000) for name in users
        ),
    }
    service, broker = (_memory_mib(pid) for pid in (stack.service_pid, stack.broker_pid))
    alive = asking.get("/livez").worked
    return Grown(wanted, loading, reads, single, service, broker, alive)


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
        upper = min(present + _IN_ONE_REQUEST, wanted)
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


def _alterations(users: Iterable[str], value: int) -> Mapping[str, Any]:
    ops = [{"key": "producer_byte_rate", "value": value}]
    alterations = [{"entity": {"user": name}, "ops": ops} for name in users]
    return {"alterations": alterations, "wait": "none"}


def _typical(requests: Iterable[Asked]) -> Asked:
    """Return the first failure, or the one in the middle."""
    asked = list(requests)
    failed = [item for item in asked if not item.worked]
    return failed[0] if failed else sorted(asked, key=lambda item: item.ms)[len(asked) // 2]


def _memory_mib(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = dict(line.removesuffix(" kB").split(":\t") for line in lines if line.startswith("Vm"))
    return int(kib["VmRSS"]) // 1024, int(kib["VmHWM"]) // 1024


_HEAD = """# More and more entities

Written by one run of `python -m benchmarks.load_test` on one machine. Entities are users with
names of 32 random hexadecimal digits and one key; all of them were loaded through the service,
each with its whole audit record. A read that failed shows the
status and the code of its problem. Reads of everything were made once, those of one entity 15 times
(the table has the median)."""


def growth_page(where: Sequence[tuple[str, str]], steps: Sequence[Grown], failure: str) -> str:
    """Return the page in Markdown; ``failure`` is why there are no further steps."""
    sizes = [f"{step.entities:,}" for step in steps]
    kinds = list(steps[0].reads) if steps else []
    reads = [[kind, *(_cell(step.reads[kind]) for step in steps)] for kind in kinds]
    writes = [
        [f"{_IN_ONE_REQUEST:,} new entities, median", *(show(step.loaded_ms) for step in steps)],
        ["one alteration more", *(_cell(step.single) for step in steps)],
        ["requests that failed and were repeated", *(step.failures for step in steps)],
    ]
    memory = [
        ["service", *(f"{now:,} ({most:,})" for now, most in (step.service_mib for step in steps))],
        ["broker", *(f"{now:,} ({most:,})" for now, most in (step.broker_mib for step in steps))],
        ["the service is alive", *("yes" if step.alive else "**no**" for step in steps)],
    ]
    texts = [_HEAD, environment_table(where)]
    for title, unit, rows in (
        ("Reading", "ms, and megabytes", reads),
        ("Writing", "ms", writes),
        ("Memory", "MiB, and the most so far", memory),
    ):
        texts += [f"## {title}", grid((unit, *sizes), rows)]
    if failure:
        texts += ["## Where it ended", failure]
    return "\n\n".join(texts) + "\n"


def _cell(asked: Asked) -> str:
    if not asked.worked:
        return f"{asked.status} {asked.code} after {show(asked.ms)}"
    if asked.megabytes < 1:
        return show(asked.ms)
    return f"{show(asked.ms)} (first byte {show(asked.first_ms)}; {asked.megabytes:.1f} MB)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where not even loading worked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_test", description=__doc__)
    parser.add_argument(
        "--entities",
        type=int,
        action="append",
        metavar="N",
        help=f"look at so many; may come more than once; {', '.join(map(str, _SIZES))} without it",
    )
    parser.add_argument("--heap", default=_HEAP, help=f"of the broker; {_HEAP} without it")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"write it there, as {_PAGE}")
    options = parser.parse_args(argv)
    progress, steps, failure = Progress(), list[Grown](), ""
    with (
        running_stack(progress, heap=options.heap) as stack,
        stack.client(_PATIENCE_S) as service,
    ):
        where = environment(stack.database_url, Peers(), heap=options.heap)
        try:
            for wanted in sorted(options.entities or _SIZES):
                present = steps[-1].entities if steps else 0
                steps.append(grow(stack, Asking(service), present, wanted, progress))
        except (BenchmarkError, LocalDevError) as error:
            failure = str(error)
    page = growth_page(where, steps, failure)
    print(page)
    if options.page:
        options.page.write_text(page, encoding="utf-8")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
