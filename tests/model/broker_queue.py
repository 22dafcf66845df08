"""Two alterations in the queue that a broker really has, and what the service does about them.

A broker forwards one request after another to the controller. Where their connection breaks it
queues what was not answered again in reverse order, so that a fence overtakes an alteration once
for each break. Source: ``NodeToControllerRequestThread``, ``InterBrokerSendThread``.
"""

import gc
from collections.abc import Iterator
from enum import Enum, IntEnum
from functools import cache
from typing import NamedTuple

NOBODY = -1
INITIAL = 0
VALUES = (1, 2)
"""What each writer sets."""

DRIFT = 2
"""Stands in the audit log for the scan that compares it with the cluster."""


class Lock(Enum):
    """What keeps two alterations apart: nothing, a lock that dies with its process, a row."""

    NONE = "none"
    SESSION = "dies with the process"
    DURABLE = "durable slot"


class Assumption(NamedTuple):
    """What the cluster and the machines may do.

    Attributes:
        name: How the table calls it.
        breaks: How often the broker's connection to the controller may break.
        loses_answers: A break may lose the answer to what was applied; the broker sends it again.
        keeps_copies: A break may leave a copy in a frozen controller's buffer, for later; only of
            what is unanswered for 30 s, when a broker gives a silent connection up.
        bounded: What was sent is applied or gone when its 95 s are over.
        applies_again: A request may be applied a second time after its answer was sent.
        frozen_worker: A worker may freeze between its last check and the sending, for long.
        writers: Who alters; one alone shows what becomes of a late apply that nobody overwrites.
    """

    name: str
    breaks: int = 0
    loses_answers: bool = False
    keeps_copies: bool = False
    bounded: bool = True
    applies_again: bool = False
    frozen_worker: bool = False
    writers: tuple[int, ...] = (0, 1)


class Rules(NamedTuple):
    """What the service does.

    Attributes:
        name: How the table calls them.
        lock: What keeps two alterations apart; the slot of the other rules.
        fences: Answered one after the other before a verdict.
        pinned: They go through the broker that the alteration went through.
        waits: A verdict is final only 95 s after the sending.
        fresh_reads: A verdict is read behind a barrier.
        listens: An answer that comes late is still recorded.
        keeps_slot: After a late answer the slot stays taken until the 95 s are over.
        supersedes: A caller may take the slot of an alteration that is not concluded.
        doubts: After that, the value that the superseded one wanted is no proof of "not applied".
        scans: A scan records where the cluster differs from the last audited value.
    """

    name: str
    lock: Lock = Lock.DURABLE
    fences: int = 0
    pinned: bool = True
    waits: bool = False
    fresh_reads: bool = True
    listens: bool = False
    keeps_slot: bool = False
    supersedes: bool = False
    doubts: bool = False
    scans: bool = False


class Step(IntEnum):
    """How far a writer is.

    FROZEN between its last check and the sending; LISTENING on after the deadline; LATE with an
    answer that came then, not recorded yet; KEEPING the slot though it is recorded.
    """

    NEW = 0
    INTENDED = 1
    SENT = 2
    ANSWERED = 3
    DONE = 4
    FROZEN = 5
    LISTENING = 6
    LATE = 7
    KEEPING = 8
    LOST = 9


RECOVERABLE = frozenset({Step.FROZEN, Step.LISTENING, Step.LOST})
SETTLED = frozenset({Step.NEW, Step.DONE, Step.LISTENING, Step.LOST})


class Request(NamedTuple):
    """What a broker queues: the alteration of a writer, or a fence of its recovery."""

    writer: int
    is_fence: bool = False


class Entry(NamedTuple):
    """A row of the audit log: a writer or the scan, its verdict, the value that holds."""

    source: int
    verdict: str
    value: int


class State(NamedTuple):
    """Both writers, the broker's queue, the controller, the audit log, the clock.

    Attributes:
        holder: Who holds the slot.
        queue: The broker's; the first one is with the controller.
        copies: Alterations that lie in a buffer of the controller, outside the queue.
        sent: Who sent, in order.
        answers: Alterations whose answer has left the broker.
        fences: How many of each recovery were answered.
        expired: Alterations whose 95 s are over.
        before: What each writer read under the slot.
        again: Alterations that may be applied a second time.
    """

    breaks: int = 0
    steps: tuple[Step, Step] = (Step.NEW, Step.NEW)
    holder: int = NOBODY
    queue: tuple[Request, ...] = ()
    copies: frozenset[int] = frozenset()
    sent: tuple[int, ...] = ()
    answers: frozenset[int] = frozenset()
    fences: tuple[int, int] = (0, 0)
    expired: frozenset[int] = frozenset()
    before: tuple[int, int] = (INITIAL, INITIAL)
    applied: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()
    value: int = INITIAL
    stale_value: int = INITIAL
    audit: tuple[Entry, ...] = ()


def replaced(pair: tuple[int, int], index: int, new: int) -> tuple[int, int]:
    """Return the pair with one of its two changed."""
    return (pair[0], new) if index else (new, pair[1])


def at(state: State, writer: int, step: Step) -> State:
    """Let a writer be at a step."""
    first, second = state.steps
    return state._replace(steps=(first, step) if writer else (step, second))


def concluded(state: State, writer: int) -> bool:
    """Whether the audit log has a conclusion for the writer."""
    return any(entry.source == writer for entry in state.audit)


def freed(state: State, writer: int) -> State:
    """Free the writer's slot, if it holds it."""
    return state._replace(holder=NOBODY) if state.holder == writer else state


def lost(rules: Rules, state: State, writer: int) -> State:
    """Crash, or give up waiting: nobody of the writer's process will conclude any more."""
    left = at(state, writer, Step.LOST)
    return freed(left, writer) if rules.lock is Lock.SESSION else left


def noted(state: State, entry: Entry) -> State:
    """Add a conclusion, unless there is one."""
    if concluded(state, entry.source):
        return state
    return state._replace(audit=(*state.audit, entry))


def time_may_pass(assumed: Assumption, state: State, writer: int) -> bool:
    """Tell whether the writer's 95 s can be over: then those of whoever sent before are, too."""
    earlier = state.sent
    if writer in earlier:
        earlier = earlier[: earlier.index(writer) + 1]
    alive = {request.writer for request in state.queue if not request.is_fence} | state.copies
    return not (assumed.bounded and alive.intersection(earlier))


def audited_value(state: State) -> int:
    """Return the value that the audit log says holds."""
    values = [item.value for item in state.audit if item.verdict != "superseded"]
    return values[-1] if values else INITIAL


def apply(state: State, writer: int) -> State:
    """Let the controller apply an alteration."""
    return state._replace(
        applied=state.applied | {writer}, stale_value=state.value, value=VALUES[writer]
    )


def readable(rules: Rules, state: State) -> set[int]:
    """Return the values that a read may show."""
    return {state.value} if rules.fresh_reads else {state.value, state.stale_value}


def cluster_moves(assumed: Assumption, state: State) -> Iterator[State]:
    """Let the broker and the controller do something."""
    if state.queue:
        yield from _head_moves(assumed, state)
    for index, request in enumerate(state.queue):
        yield _dropped(state, index, request)
    if state.breaks < assumed.breaks and state.queue:
        yield from _break_moves(assumed, state)
    for writer in state.copies:
        rest = state._replace(copies=state.copies - {writer})
        yield apply(rest, writer)
        yield rest
    for writer in state.again:
        rest = state._replace(again=state.again - {writer})
        yield apply(rest, writer)
        yield rest


def _head_moves(assumed: Assumption, state: State) -> Iterator[State]:
    head, *others = state.queue
    rest = state._replace(queue=tuple(others))
    if head.is_fence:
        answered = state.fences[head.writer] + 1
        yield rest._replace(fences=replaced(state.fences, head.writer, answered))
        return
    applied = apply(rest, head.writer)
    answered_state = applied._replace(answers=state.answers | {head.writer})
    yield answered_state
    if assumed.applies_again:
        yield answered_state._replace(again=state.again | {head.writer})


def _dropped(state: State, index: int, request: Request) -> State:
    """Let a request vanish: its 60 s in the queue are over, or the broker was killed."""
    rest = state._replace(queue=state.queue[:index] + state.queue[index + 1 :])
    if not request.is_fence:
        return rest
    return rest._replace(fences=replaced(state.fences, request.writer, 0))


def _break_moves(assumed: Assumption, state: State) -> Iterator[State]:
    broken = state._replace(breaks=state.breaks + 1, queue=state.queue[::-1])
    yield broken
    head = state.queue[0]
    if head.is_fence:
        return
    if assumed.loses_answers:
        yield apply(broken, head.writer)
    if assumed.keeps_copies and state.steps[head.writer] is not Step.SENT:
        yield broken._replace(copies=state.copies | {head.writer})


START = State()
"""From here the first writer begins: where the other does, all that follows is the mirror image."""

WAITING = frozenset({Step.SENT, Step.LISTENING, Step.ANSWERED, Step.LATE})


class Exploration(NamedTuple):
    """How many states there are, and which violations some of them show."""

    states: int
    violations: frozenset[str]


@cache
@cache
def explore(rules: Rules, assumed: Assumption) -> Exploration:
    """Visit every state of the rules under an assumption; it is done once in a process."""
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
