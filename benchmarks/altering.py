"""Alterations: the bare alter, ``POST /quotas/alterations``, kafka-configs and other clients.

Each call sets values that were never set before.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
    timed,
)
from benchmarks.run import Run
from benchmarks.wire import KEYS, Entities

_VALUES: Final = itertools.count(1_000_000)


Alter = Callable[[Run, Entities, int], Awaitable[float]]
"""Sets each key of each entity to a value; returns the milliseconds that it took."""


def _arm(name: str, alter: Alter, run: Run, entities: Entities, *, every: int = 1) -> Arm:
    """Return an arm that has entities of its own, and waits untimed until its change shows."""

    async def measure() -> float:
        value = next(_VALUES)
        ms = await alter(run, entities, value)
        await run.wire.until_readable(entities, value)
        return ms

    return Arm(name, measure, every)


async def _bare_alter(run: Run, entities: Entities, value: int) -> float:
    """Send AlterClientQuotas over the warm connection; its encoding is timed, as the service's."""
    alterations = entities.alterations(value)
    with timed() as took:
        await run.wire.alter(alterations)
    return took.ms


async def _post_alter(run: Run, entities: Entities, value: int, *, wait: str = "none") -> float:
    """Send ``POST /quotas/alterations`` over the warm connection."""
    await run.service.warm_up()
    body = entities.body(value, wait=wait)
    request = prepared("POST", "/quotas/alterations", token=run.stack.token, body=body)
    with timed() as took:
        raise_unless_applied(await run.service.exchange(request))
    return took.ms


async def _peer_alter(peer: Worker, _: Run, entities: Entities, value: int) -> float:
    """Ask a warm peer, which measures its own call."""
    return read_result(peer.name, await peer.ask(alter_job(entities, value))).ms


async def _run(start: Start) -> tuple[float, str]:
    """Run a process to its end; return its milliseconds, and its output, which is read later."""
    with timed() as took:
        output = await asyncio.to_thread(run_to_end, start)
    return took.ms, output


async def _tool_alter(run: Run, entities: Entities, value: int) -> float:
    """Run kafka-configs, with the heap and the collector of Kafka's scripts, without them."""
    jars = os.pathsep.join(str(jar) for jar in class_path())
    java = [str(find_java()), "-Xmx256M", "-server", "-XX:+UseG1GC", "-cp", jars]
    servers = ["--bootstrap-server", run.stack.bootstrap_servers]
    command = [*java, "kafka.admin.ConfigCommand", *servers, *entities.kafka_configs(value)]
    ms, _ = await _run(Start(command, jvm_environment()))
    return ms


async def _curl_alter(run: Run, entities: Entities, value: int) -> float:
    """Run ``curl`` to ``POST /quotas/alterations``; the body comes from standard input."""
    url = f"http://127.0.0.1:{run.stack.service_port}/quotas/alterations"
    headers = ["-H", f"Authorization: Bearer {run.stack.token}"]
    headers += ["-H", "Content-Type: application/json"]
    command = ["curl", "-sS", "--fail", *headers, "--data-binary", "@-", url]
    ms, output = await _run(Start(command, os.environ, entities.body(value, wait="none").decode()))
    raise_unless_applied(Answer(OK, output.encode()))
    return ms


async def _peer_process_alter(peer: Peer, run: Run, entities: Entities, value: int) -> float:
    """Run a peer that does one job, and ends."""
    command = [*peer.command, run.stack.bootstrap_servers]
    ms, output = await _run(Start(command, peer.environ, alter_job(entities, value) + "\n"))
    read_result(peer.name, output)
    return ms


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
    alters: dict[str, Alter] = {_BARE_WARM: _bare_alter, _POST_WARM: _post_alter}
    if run.peers.has_curl:
        alters[_CURL] = _curl_alter
    for peer in run.peers.present:
        alters[f"{peer.name}, one process"] = partial(_peer_process_alter, peer)
    alters[_CONFIGS] = _tool_alter
    arms = [
        _arm(name, alter, run, Entities(f"shell-{number}"))
        for number, (name, alter) in enumerate(alters.items())
    ]
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
    readable = partial(_post_alter, wait="readable")
    seldom = plan.single_alters // plan.tool_calls
    arms = (
        _arm(_BARE, _bare_alter, run, Entities("bare-one")),
        _arm(_POST, _post_alter, run, Entities("post-one")),
        _arm("`POST`, `wait: readable`", readable, run, Entities("readable-one")),
        _arm(_TOOL, _tool_alter, run, Entities("tool"), every=seldom),
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
    alters: dict[str, Alter] = {_BARE: _bare_alter, _POST: _post_alter}
    alters |= {peer.name: partial(_peer_alter, peer) for peer in peers}
    arms = [
        _arm(name, alter, run, Entities(f"many-{number}", count))
        for number, (name, alter) in enumerate(alters.items())
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
        _arm(_BARE, _bare_alter, run, Entities("bare-most", count, keys)),
        _arm(_POST, _post_alter, run, Entities("post-most", count, keys)),
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
