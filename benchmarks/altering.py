"""Alterations: the bare alter, ``POST /quotas/alterations``, kafka-configs and other clients.

Each call sets values that were never set before.
"""

import asyncio
import itertools
import os
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.java import find_java
from app.localdev.jars import class_path
from app.localdev.kafka import jvm_environment
from benchmarks.competitors.peers import (
    Peer,
    Start,
    Worker,
    alter_job,
    read_result,
    run_to_end,
)
from benchmarks.http_connection import OK, Answer, prepared, raise_unless_applied
from benchmarks.measures import (
    LATENCY_COLUMNS,
    Arm,
    Goal,
    Measure,
    Section,
    interleaved,
    latency_cells,
    latency_rows,
    show,
)
from benchmarks.run import Run
from benchmarks.wire import KEYS, Entities

_VALUES: Final = itertools.count(1_000_000)


class _AlterArm(Arm, ABC):
    """An arm that has entities of its own, and waits untimed until its change shows."""

    def __init__(self, name: str, run: Run, entities: Entities, *, every: int = 1) -> None:
        super().__init__(name, every=every)
        self.run = run
        self.entities = entities
        self.value = 0

    async def prepare(self) -> None:
        self.value = next(_VALUES)

    async def settle(self) -> None:
        await self.run.wire.until_readable(self.entities, self.value)


class _BareAlter(_AlterArm):
    """AlterClientQuotas over the warm connection; its encoding is timed, as in the service."""

    async def prepare(self) -> None:
        await super().prepare()
        self._alterations = self.entities.alterations(self.value)

    async def call(self) -> None:
        await self.run.wire.alter(self._alterations)


class _PostAlter(_AlterArm):
    """``POST /quotas/alterations`` over the warm connection."""

    wait = "none"

    async def prepare(self) -> None:
        await super().prepare()
        await self.run.service.warm_up()
        body = self.entities.body(self.value, wait=self.wait)
        token = self.run.stack.token
        self._request = prepared("POST", "/quotas/alterations", token=token, body=body)

    async def call(self) -> None:
        raise_unless_applied(await self.run.service.exchange(self._request))


class _PostReadable(_PostAlter):
    wait = "readable"


class _PeerAlter(_AlterArm):
    """A warm peer; it measures its own call."""

    def __init__(self, run: Run, entities: Entities, peer: Worker) -> None:
        super().__init__(peer.name, run, entities)
        self._peer = peer

    async def prepare(self) -> None:
        await super().prepare()
        self._job = alter_job(self.entities, self.value)

    async def call(self) -> float:
        return read_result(self.name, await self._peer.ask(self._job)).ms


class _ProcessAlter(_AlterArm, ABC):
    """A process from its start to its end; its output is read after the clock has stopped."""

    start: Callable[[], Start]
    check: Callable[[str], object]

    async def prepare(self) -> None:
        await super().prepare()
        self._start = self.start()

    async def call(self) -> None:
        self._output = await asyncio.to_thread(run_to_end, self._start)

    async def settle(self) -> None:
        self.check(self._output)
        await super().settle()


class _ToolAlter(_ProcessAlter):
    """kafka-configs, with the heap and the collector of Kafka's shell scripts, without them."""

    def start(self) -> Start:
        jars = os.pathsep.join(str(jar) for jar in class_path())
        java = [str(find_java()), "-Xmx256M", "-server", "-XX:+UseG1GC", "-cp", jars]
        servers = ["--bootstrap-server", self.run.stack.bootstrap_servers]
        arguments = self.entities.kafka_configs(self.value)
        command = [*java, "kafka.admin.ConfigCommand", *servers, *arguments]
        return Start(command, jvm_environment())

    def check(self, _: str) -> None:
        """Do nothing: it has exit codes."""


class _CurlAlter(_ProcessAlter):
    """``curl`` to ``POST /quotas/alterations``; the body comes from standard input."""

    def start(self) -> Start:
        stack = self.run.stack
        url = f"http://127.0.0.1:{stack.service_port}/quotas/alterations"
        headers = ["-H", f"Authorization: Bearer {stack.token}"]
        headers += ["-H", "Content-Type: application/json"]
        command = ["curl", "-sS", "--fail", *headers, "--data-binary", "@-", url]
        return Start(command, os.environ, self.entities.body(self.value, wait="none").decode())

    def check(self, output: str) -> None:
        raise_unless_applied(Answer(OK, output.encode()))


class _PeerProcessAlter(_ProcessAlter):
    """A peer that starts, does one job, and ends."""

    def __init__(self, run: Run, entities: Entities, peer: Peer) -> None:
        super().__init__(f"{peer.name}, one process", run, entities)
        self._peer = peer

    def start(self) -> Start:
        command = [*self._peer.command, self.run.stack.bootstrap_servers]
        return Start(command, self._peer.environ, alter_job(self.entities, self.value) + "\n")

    def check(self, output: str) -> None:
        read_result(self.name, output)


_BARE_WARM = "bare alter, warm"
_POST_WARM = "`POST`, `wait: none`, warm"
_CURL = "`curl` to the service, `wait: none`"
_CONFIGS = "`kafka-configs`"
_TIMES_CURL = 20.0
_LIMIT_MS = 5.0


async def measure_shell(run: Run) -> list[Section]:
    """Measure one alteration by one process of each kind, beside the two warm clients.

    Raises:
        BenchmarkError: A process has failed.
    """
    rounds = run.plan.shell_alters
    run.progress.say(f"altering from a shell: {rounds} rounds")
    arms: list[Arm] = [
        _BareAlter(_BARE_WARM, run, Entities("shell-bare")),
        _PostAlter(_POST_WARM, run, Entities("shell-post")),
    ]
    if run.peers.has_curl:
        arms.append(_CurlAlter(_CURL, run, Entities("shell-curl")))
    arms += [
        _PeerProcessAlter(run, Entities(f"shell-{number}"), peer)
        for number, peer in enumerate(run.peers.present)
    ]
    arms.append(_ToolAlter(_CONFIGS, run, Entities("shell-tool")))
    measures = await interleaved(arms, rounds=rounds, warm_up=1)
    ours = _CURL if run.peers.has_curl else _POST_WARM
    note = (
        "One entity, 2 keys, from the start of the process to its end; the two warm clients are "
        "there for comparison. The service records each change before and after (fsync on). "
        "`kafka-configs` is `kafka.admin.ConfigCommand` called directly with `-Xmx256M "
        "-XX:+UseG1GC`: Kafka's shell scripts would come on top."
    )
    times_ours = measures[_CONFIGS].ratio_to(measures[ours])
    goals = (
        Goal(f"`kafka-configs` / {ours}", _TIMES_CURL, times_ours, at_most=False),
        Goal(
            "warm `POST` of 1 entity beside those processes: ms more than a bare alter",
            _LIMIT_MS,
            measures[_POST_WARM].excess_over(measures[_BARE_WARM]),
        ),
    )
    columns = (*LATENCY_COLUMNS, "x bare", f"x {ours}")
    rows = latency_rows(measures, _BARE_WARM, ours)
    return [Section("One change from a shell", note, columns, rows, goals, measures)]


_BARE = "bare alter"
_POST = "`POST`, `wait: none`"
_TOOL = "`kafka-configs`, one process"
_LIMIT = 2.0
_LARGEST_LIMIT = 2.5
_LOOP_LIMIT = 3000.0
_WARM = (
    "The other clients are long-lived processes that time their own calls, from their library's "
    "objects to their library's objects."
)


async def measure_alters(run: Run) -> list[Section]:
    """Measure alterations of one entity, of many and of as many as one request may have."""
    plan = run.plan
    run.progress.say(f"altering 1 entity: {plan.single_alters} rounds")
    singles = await _single_alters(run)
    run.progress.say(f"altering {plan.entities:,} entities: {plan.batch_alters} rounds")
    with run.peers.warm(run.stack.bootstrap_servers) as peers:
        batches = await _batch_alters(run, singles.measures[_TOOL], peers)
    run.progress.say(f"altering {plan.largest:,} entities: {plan.largest_alters} rounds")
    return [singles, batches, await _largest_alters(run)]


async def _single_alters(run: Run) -> Section:
    plan = run.plan
    arms = (
        _BareAlter(_BARE, run, Entities("bare-one")),
        _PostAlter(_POST, run, Entities("post-one")),
        _PostReadable("`POST`, `wait: readable`", run, Entities("readable-one")),
        _ToolAlter(_TOOL, run, Entities("tool"), every=plan.single_alters // plan.tool_calls),
    )
    measures = await interleaved(arms, rounds=plan.single_alters, warm_up=plan.warm_up)
    note = (
        "2 keys, all checked, authorized and recorded in Postgres (fsync on) before and after by "
        "the service; the bare alter has none of that. A broker waits about 25 ms before it "
        "writes (`controller.quorum.append.linger.ms`): nearly all of the bare time."
    )
    return _section(1, note, measures)


async def _batch_alters(run: Run, tool: Measure, peers: Sequence[Worker]) -> Section:
    """Measure alterations of many entities in one request, against a loop of kafka-configs."""
    count = run.plan.entities
    arms: list[Arm] = [
        _BareAlter(_BARE, run, Entities("bare-many", count)),
        _PostAlter(_POST, run, Entities("post-many", count)),
    ]
    arms += [
        _PeerAlter(run, Entities(f"peer-{number}-many", count), peer)
        for number, peer in enumerate(peers)
    ]
    measures = await interleaved(arms, rounds=run.plan.batch_alters, warm_up=run.plan.warm_up)
    loop = tool.times(count)
    note = (
        f"2 keys each, one request, in the service every one an audit row before and after. {_WARM}"
    )
    bare, post = measures[_BARE], measures[_POST]
    what = f"`POST` of {count:,} entities with audit"
    goals = (
        Goal(f"{what} / bare alter", _LIMIT, post.ratio_to(bare)),
        Goal(
            f"{count:,} x `kafka-configs` (extrapolated) / {what}",
            _LOOP_LIMIT,
            loop.median / post.median,
            at_most=False,
        ),
    )
    name = f"`kafka-configs` in a loop: **extrapolated**, {count:,} times the process above"
    ratios = [show(loop.median / other.median) for other in (bare, post)]
    section = _section(count, note, measures, *goals)
    return replace(
        section,
        rows=[*section.rows, [*latency_cells(name, loop), *ratios]],
        measures={**measures, f"`kafka-configs` x {count:,}, extrapolated": loop},
    )


async def _largest_alters(run: Run) -> Section:
    count, keys = run.plan.largest, KEYS[:1]
    arms = (
        _BareAlter(_BARE, run, Entities("bare-most", count, keys)),
        _PostAlter(_POST, run, Entities("post-most", count, keys)),
    )
    measures = await interleaved(arms, rounds=run.plan.largest_alters, warm_up=run.plan.warm_up)
    note = (
        "1 key each, one request, in the service every one an audit row before and after. A "
        "controller takes at most 10,000 changes in a request."
    )
    ratio = measures[_POST].ratio_to(measures[_BARE])
    goal = Goal(f"`POST` of {count:,} entities with audit / bare alter", _LARGEST_LIMIT, ratio)
    return _section(count, note, measures, goal)


def _section(count: int, note: str, measures: Mapping[str, Measure], *goals: Goal) -> Section:
    title = "Alter 1 entity" if count == 1 else f"Alter {count:,} entities"
    columns = (*LATENCY_COLUMNS, "x bare", "x `POST`")
    return Section(title, note, columns, latency_rows(measures, _BARE, _POST), goals, measures)
