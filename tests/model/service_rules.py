"""What the service does in ``tests.model.broker_queue``: its writers, its recovery, its scan."""

import gc
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.model.broker_queue import (
    DRIFT,
    NOBODY,
    RECOVERABLE,
    SETTLED,
    VALUES,
    Assumption,
    Entry,
    Lock,
    Request,
    Rules,
    State,
    Step,
    at,
    audited_value,
    cluster_moves,
    concluded,
    freed,
    lost,
    noted,
    readable,
    replaced,
    time_may_pass,
)

START = State()
"""From here the first writer begins: where the other does, all that follows is the mirror image."""

WAITING = frozenset({Step.SENT, Step.LISTENING, Step.ANSWERED, Step.LATE})


class Exploration(NamedTuple):
    """How many states there are, and which violations some of them show."""

    states: int
    violations: frozenset[str]


@cache
def explore(rules: Rules, assumed: Assumption) -> Exploration:
    """Visit every state of the rules under an assumption."""
    found: set[str] = set()
    states = 0
    for state, is_end in _reachable(rules, assumed):
        states += 1
        found.update(_violations(rules, state))
        if is_end and not all(concluded(state, writer) for writer in _begun(state)):
            found.add("open intent")
    return Exploration(states, frozenset(found))


def _reachable(rules: Rules, assumed: Assumption) -> Iterator[tuple[State, bool]]:
    """Yield each reachable state, and whether it is an end, from which nothing moves.

    States have no cycles, so Python's collector is off: it would search all of them repeatedly.
    """
    seen = {START}
    waiting = [START]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for state in waiting:  # which grows meanwhile
            following = tuple(_moves(rules, assumed, state))
            yield state, not following
            for item in following:
                before = len(seen)
                seen.add(item)
                if len(seen) > before:
                    waiting.append(item)
    finally:
        if was_enabled:
            gc.enable()


def _moves(rules: Rules, assumed: Assumption, state: State) -> Iterator[State]:
    yield from cluster_moves(assumed, state)
    for writer in assumed.writers if state != START else assumed.writers[:1]:
        yield from _writer_moves(rules, assumed, state, writer)
        if state.steps[writer] in RECOVERABLE and not concluded(state, writer):
            yield from _recovery_moves(rules, assumed, state, writer)
    if state.stale_value != state.value and not rules.fresh_reads:
        yield state._replace(stale_value=state.value)
    if _drifted(rules, state):
        yield state._replace(audit=(*state.audit, Entry(DRIFT, "drift", state.value)))


def _writer_moves(rules: Rules, assumed: Assumption, state: State, writer: int) -> Iterator[State]:
    step = state.steps[writer]
    if step is Step.NEW:
        yield from _intended(rules, state, writer)
    elif step is Step.INTENDED:
        yield _sent(at(state, writer, Step.SENT), writer)
        yield lost(rules, state, writer)
        if assumed.frozen_worker:
            yield at(state, writer, Step.FROZEN)
    elif step is Step.FROZEN:
        yield _sent(lost(rules, state, writer), writer)
        yield lost(rules, state, writer)
    elif step is Step.KEEPING:
        if time_may_pass(assumed, state, writer):
            yield freed(at(state, writer, Step.DONE), writer)
    elif step in WAITING:
        yield lost(rules, state, writer)
        yield from _waiting_moves(rules, state, writer)


def _waiting_moves(rules: Rules, state: State, writer: int) -> Iterator[State]:
    """Let an answer come, be recorded, or be abandoned."""
    step = state.steps[writer]
    applied = Entry(writer, "applied", VALUES[writer])
    if step is Step.ANSWERED or (step is Step.LATE and not rules.keeps_slot):
        yield freed(noted(at(state, writer, Step.DONE), applied), writer)
    elif step is Step.LATE:
        yield noted(at(state, writer, Step.KEEPING), applied)
    elif writer in state.answers:
        yield at(state, writer, Step.ANSWERED if step is Step.SENT else Step.LATE)
    if step is Step.SENT and rules.listens:
        yield at(state, writer, Step.LISTENING)


def _intended(rules: Rules, state: State, writer: int) -> Iterator[State]:
    """Take the slot; read under it what holds before."""
    other = 1 - writer
    free = state
    if state.holder == other:
        if not rules.supersedes or state.steps[other] not in RECOVERABLE:
            return
        free = noted(state, Entry(other, "superseded", state.value))
    for value in readable(rules, state):
        yield at(free, writer, Step.INTENDED)._replace(
            holder=NOBODY if rules.lock is Lock.NONE else writer,
            before=replaced(state.before, writer, value),
        )


def _sent(state: State, writer: int) -> State:
    queue = (*state.queue, Request(writer))
    return state._replace(queue=queue, sent=(*state.sent, writer))


def _recovery_moves(
    rules: Rules, assumed: Assumption, state: State, writer: int
) -> Iterator[State]:
    if rules.waits and writer not in state.expired:
        if time_may_pass(assumed, state, writer):
            yield state._replace(expired=state.expired | {writer})
    elif state.fences[writer] < rules.fences:
        yield from _fence(rules, state, writer)
    else:
        for seen in readable(rules, state):
            entry = Entry(writer, _verdict(rules, state, writer, seen), seen)
            yield freed(noted(state, entry), writer)


def _fence(rules: Rules, state: State, writer: int) -> Iterator[State]:
    """Send a fence, one after the other; another broker's queue is taken to be empty."""
    fence = Request(writer, is_fence=True)
    if not rules.pinned:
        answered = replaced(state.fences, writer, state.fences[writer] + 1)
        yield state._replace(fences=answered)
    elif fence not in state.queue:
        yield state._replace(queue=(*state.queue, fence))


def _verdict(rules: Rules, state: State, writer: int, seen: int) -> str:
    other = 1 - writer
    superseded = any(item[:2] == (other, "superseded") for item in state.audit)
    if seen == VALUES[writer]:
        return "applied"
    if rules.doubts and superseded and seen == VALUES[other]:
        return "observed_other"
    return "not_applied" if seen == state.before[writer] else "observed_other"


def _drifted(rules: Rules, state: State) -> bool:
    return rules.scans and state.holder == NOBODY and audited_value(state) != state.value


def _begun(state: State) -> list[int]:
    return [writer for writer, step in enumerate(state.steps) if step is not Step.NEW]


def _violations(rules: Rules, state: State) -> Iterator[str]:
    """Compare the audit log with the cluster once everything has come to rest."""
    in_flight = [request for request in state.queue if not request.is_fence]
    busy = in_flight or state.copies or state.again or not SETTLED.issuperset(state.steps)
    if busy or not all(concluded(state, writer) for writer in _begun(state)):
        return
    if _drifted(rules, state):
        return
    recorded = {entry.value for entry in state.audit if entry.source == DRIFT}
    for entry in state.audit:
        was_applied = entry.source in state.applied
        if entry.verdict == "applied" and not was_applied:
            yield "contradiction"
        if entry.verdict == "not_applied" and was_applied:
            late_is_recorded = VALUES[entry.source] in recorded
            yield "contradiction, recorded" if late_is_recorded else "contradiction"
    if audited_value(state) != state.value:
        yield "wrong last value"
    elif recorded:
        yield "drift, recorded"
