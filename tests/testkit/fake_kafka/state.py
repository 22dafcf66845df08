"""The state that the brokers of a fake cluster share, and the faults of single alterations."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from app.domain.authorization import AclBinding
from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_kafka.controller import CONTROLLER_ID, Codes, FakeController, Patience
from tests.testkit.fake_kafka.messages import AlterAsked, QuorumView
from tests.testkit.fake_kafka.quotas import Entry, Verdict

HELD: Final = math.inf
"""Instead of a delay: applied when the test says so."""


class Answer(Enum):
    """What becomes of the answer."""

    TRUTH = auto()
    CLOSE = auto()
    SILENCE = auto()


@dataclass(frozen=True)
class Fault:
    """What happens to one alteration; every default is that of a healthy cluster.

    Attributes:
        delay_s: How long the broker waits before it does anything.
        applies: Null: forwarded as always. Otherwise: after how many seconds the controller handles
            it, once for each; none for never.
        answer: The connection may be closed, or stay open in silence. With an immediate apply, or
            forwarded as always, that comes after the apply.
        answer_after_s: How long the answer, or the closing, is held back.
        refused: The code that the controller refuses with: for all, or by entity.
        error_code: The code that the answer says, whatever was done: for all, or by entity.
        left_out: The entities that the answer does not mention.
    """

    delay_s: float = 0.0
    applies: tuple[float, ...] | None = None
    answer: Answer = Answer.TRUTH
    answer_after_s: float = 0.0
    refused: Codes | None = None
    error_code: Codes | None = None
    left_out: frozenset[ClientQuotaEntity] = field(default_factory=frozenset)


NO_FAULT: Final = Fault()
DROP_BEFORE_APPLYING: Final = Fault(applies=(), answer=Answer.CLOSE)
DROP_AFTER_APPLYING: Final = Fault(answer=Answer.CLOSE)
NEVER_ANSWER: Final = Fault(answer=Answer.SILENCE)


def apply_late(after_s: float, *, answer: Answer = Answer.CLOSE) -> Fault:
    """Apply it when its connection is closed, or silent, for long."""
    return Fault(applies=(after_s,), answer=answer)


def time_out_and_apply_late(after_s: float) -> Fault:
    """Answer REQUEST_TIMED_OUT, and apply it all the same."""
    return Fault(applies=(after_s,), error_code=7)


def apply_twice(again_after_s: float, *, answer: Answer = Answer.TRUTH) -> Fault:
    """Apply it now and once more: the broker did not hear the controller's answer."""
    return Fault(applies=(0.0, again_after_s), answer=answer)


class Alteration(NamedTuple):
    """One AlterClientQuotas request that reached a broker; ``number`` counts them from 1 on."""

    number: int
    at: float
    broker_id: int
    client_id: str
    principal: str
    entries: tuple[Entry, ...]
    validate_only: bool


FaultSchedule = Callable[[Alteration], Fault | None]
"""Decides for each alteration, validations included; null is no fault."""


class Faults:
    """Which fault is next: those that were announced first, then what the schedule says."""

    def __init__(self) -> None:
        self.schedule: FaultSchedule | None = None
        self._announced: list[tuple[Fault, Callable[[Alteration], bool]]] = []

    def announce(self, fault: Fault, *, broker_id: int | None, validate_only: bool) -> None:
        """Let it happen to the next alteration of this kind."""

        def fits(alteration: Alteration) -> bool:
            through = broker_id is None or alteration.broker_id == broker_id
            return through and alteration.validate_only == validate_only

        self._announced.append((fault, fits))

    def of(self, alteration: Alteration) -> Fault:
        """Return what happens to this one."""
        for position, (fault, fits) in enumerate(self._announced):
            if fits(alteration):
                del self._announced[position]
                return fault
        return (self.schedule(alteration) if self.schedule else None) or NO_FAULT


Work = Callable[[], list[Verdict]]


class ClusterState:
    """One controller, what was asked of it, and who may ask.

    Attributes:
        listed: The port of each broker that metadata lists.
        accounts: Passwords for SASL PLAIN by user name.
        rights: The operations on the cluster that a principal has; one that is missing has all.
        acls: What DescribeAcls tells; null where the cluster has no authorizer.
        callback: The ``client.quota.callback.class`` of each broker.
    """

    def __init__(self, controller: FakeController, patience: Patience) -> None:
        self.controller = controller
        self.patience = patience
        self.cluster_id = "fake"
        self.listed: dict[int, int] = {}
        self.accounts: Mapping[str, str] = {}
        self.rights: Mapping[str, frozenset[str]] = {}
        self.acls: Sequence[AclBinding] | None = ()
        self.callback: str | None = None
        self.faults = Faults()
        self.alterations: list[Alteration] = []
        self.held: list[Callable[[], None]] = []
        self._timers: set[asyncio.TimerHandle] = set()

    def arrived(self, broker_id: int, principal: str, asked: AlterAsked) -> Alteration:
        """Note an alteration, validations included."""
        number = len(self.alterations) + 1
        alteration = Alteration(
            number,
            time.monotonic(),
            broker_id,
            asked.client_id,
            principal,
            asked.entries,
            asked.validate_only,
        )
        self.alterations.append(alteration)
        return alteration

    def work(self, alteration: Alteration, fault: Fault) -> Work:
        """Return what the controller does with an alteration, as often as it gets it."""
        return lambda: self.controller.alter(
            alteration.number,
            alteration.entries,
            validate_only=alteration.validate_only,
            refused=fault.refused,
        )

    def apply_at(self, work: Work, delays: Sequence[float]) -> "asyncio.Future[list[Verdict]]":
        """Let the controller do it after each delay; return the verdicts of the first time."""
        loop = asyncio.get_running_loop()
        first: asyncio.Future[list[Verdict]] = loop.create_future()

        def answered(answer: "asyncio.Future[Any]") -> None:
            if not first.done():
                first.set_result(answer.result())

        def deliver() -> None:
            self.controller.deliver(work).add_done_callback(answered)

        for delay in delays:
            if delay == 0.0:
                deliver()
            elif math.isinf(delay):
                self.held.append(deliver)
            else:
                self._timers.add(loop.call_later(delay, deliver))
        return first

    def quorum(self) -> QuorumView:
        """Describe the quorum, as its leader knows it."""
        return QuorumView(CONTROLLER_ID, self.controller.epoch, self.controller.high_watermark)

    def close(self) -> None:
        """Apply nothing any more."""
        for timer in self._timers:
            timer.cancel()
