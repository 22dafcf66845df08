"""Two alterations of one entity, a crash or a time-out at every step, and an ideal fence.

Kafka may apply a request that was sent at any later time, or drop it; recovery may run at any
allowed time. The fence of this model holds back recovery until the request is gone;
``tests.model.broker_queue`` has the fence that brokers really give.
"""

from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import NamedTuple

from tests.model.exploration import reachable

NOBODY = -1
WRITERS = (0, 1)
VALUES = (1, 2)
"""What each writer sets; 0 holds at first."""


class Lock(Enum):
    """What keeps two alterations apart: nothing, a lock that dies with its process, a row."""

    NONE = "none"
    SESSION = "dies with the process"
    DURABLE = "durable slot"


class Step(IntEnum):
    """How far a writer is."""

    NEW = 0
    INTENDED = 1
    SENT = 2
    ANSWERED = 3
    DONE = 4
    LOST = 5


SETTLED = frozenset({Step.NEW, Step.DONE, Step.LOST})


class Design(NamedTuple):
    """What the service has, and the one thing that a broker may do to it."""

    lock: Lock
    fence: bool
    fresh_reads: bool
    applies_again: bool = False


class State(NamedTuple):
    """Both writers, the requests in flight, the cluster, the audit log."""

    steps: tuple[Step, Step] = (Step.NEW, Step.NEW)
    holder: int = NOBODY
    in_flight: frozenset[int] = frozenset()
    applied: tuple[int, ...] = ()
    value: int = 0
    stale_value: int = 0
    conclusions: tuple[tuple[int, bool], ...] = ()


class Exploration(NamedTuple):
    """How many states there are, and which violations some of them show."""

    states: int
    violations: frozenset[str]


def explore(design: Design) -> Exploration:
    """Visit every state of a design."""
    states = [state for state, _ in reachable(State(), lambda state: _moves(design, state))]
    violations = frozenset(found for state in states for found in _violations(state))
    return Exploration(len(states), violations)


def _moves(design: Design, state: State) -> Iterator[State]:
    for writer in WRITERS:
        yield from _writer_moves(design, state, writer)
        yield from _recovery_moves(design, state, writer)
    for writer in state.in_flight:
        yield from _cluster_moves(design, state, writer)
    if not design.fresh_reads and state.stale_value != state.value:
        yield state._replace(stale_value=state.value)


def _writer_moves(design: Design, state: State, writer: int) -> Iterator[State]:
    match state.steps[writer]:
        case Step.NEW if design.lock is Lock.NONE:
            yield _at(state, writer, Step.INTENDED)
        case Step.NEW if state.holder == NOBODY:
            yield _at(state, writer, Step.INTENDED)._replace(holder=writer)
        case Step.INTENDED:
            yield _at(state, writer, Step.SENT)._replace(in_flight=state.in_flight | {writer})
            yield _lost(design, state, writer)
        case Step.SENT:
            if writer in state.applied:
                yield _at(state, writer, Step.ANSWERED)
            yield _lost(design, state, writer)
        case Step.ANSWERED:
            yield _concluded(_at(state, writer, Step.DONE), writer, applied=True)
            yield _lost(design, state, writer)


def _recovery_moves(design: Design, state: State, writer: int) -> Iterator[State]:
    concluded = any(item == writer for item, _ in state.conclusions)
    fenced = not design.fence or writer not in state.in_flight
    if state.steps[writer] is not Step.LOST or concluded or not fenced:
        return
    for seen in {state.value} if design.fresh_reads else {state.value, state.stale_value}:
        yield _concluded(state, writer, applied=seen == VALUES[writer])


def _cluster_moves(design: Design, state: State, writer: int) -> Iterator[State]:
    arrived = state._replace(
        applied=(*state.applied, writer), stale_value=state.value, value=VALUES[writer]
    )
    gone = state.in_flight - {writer}
    yield arrived._replace(in_flight=gone)
    if design.applies_again and writer not in state.applied:
        yield arrived
    yield state._replace(in_flight=gone)


def _at(state: State, writer: int, step: Step) -> State:
    first, second = state.steps
    return state._replace(steps=(first, step) if writer else (step, second))


def _lost(design: Design, state: State, writer: int) -> State:
    """Crash, or give up waiting: nobody of the writer's process will conclude any more."""
    lost = _at(state, writer, Step.LOST)
    return _freed(lost, writer) if design.lock is Lock.SESSION else lost


def _concluded(state: State, writer: int, *, applied: bool) -> State:
    concluded = state._replace(conclusions=(*state.conclusions, (writer, applied)))
    return _freed(concluded, writer)


def _freed(state: State, writer: int) -> State:
    return state._replace(holder=NOBODY) if state.holder == writer else state


def _violations(state: State) -> Iterator[str]:
    """Compare the audit log with the cluster once everything has come to rest."""
    begun = {writer for writer in WRITERS if state.steps[writer] is not Step.NEW}
    concluded = {writer for writer, _ in state.conclusions}
    if state.in_flight or begun != concluded or not SETTLED.issuperset(state.steps):
        return
    if any(applied != (writer in state.applied) for writer, applied in state.conclusions):
        yield "contradiction"
    audited = [VALUES[writer] for writer, applied in state.conclusions if applied]
    if (audited or [0])[-1] != state.value:
        yield "wrong last value"
