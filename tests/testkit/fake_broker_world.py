"""What the brokers of a fake cluster share."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.domain.authorization import AclBinding
from tests.testkit.fake_broker_controller import CONTROLLER_ID, FakeController
from tests.testkit.fake_broker_faults import Alteration, Fault, Faults
from tests.testkit.fake_broker_messages import AlterAsked, QuorumTold
from tests.testkit.fake_broker_queue import Patience
from tests.testkit.fake_broker_quotas import Verdict

Work = Callable[[], list[Verdict]]


class World:
    """One controller, what was asked of it, and who may ask.

    Attributes:
        listed: The port of each broker that is told of.
        log_ends: How far each broker has fetched; called for each answer.
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
        self.log_ends: Callable[[], Mapping[int, int]] = dict
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

        def told(answer: "asyncio.Future[Any]") -> None:
            if not first.done():
                first.set_result(answer.result())

        def deliver() -> None:
            self.controller.deliver(work).add_done_callback(told)

        for delay in delays:
            if delay == 0.0:
                deliver()
            elif math.isinf(delay):
                self.held.append(deliver)
            else:
                self._timers.add(loop.call_later(delay, deliver))
        return first

    def quorum(self) -> QuorumTold:
        """Describe the quorum, as its leader knows it."""
        controller = self.controller
        ends = {CONTROLLER_ID: controller.end_of(len(controller.batches))}
        return QuorumTold(
            CONTROLLER_ID, controller.epoch, controller.high_watermark, ends, self.log_ends()
        )

    def close(self) -> None:
        """Apply nothing any more."""
        for timer in self._timers:
            timer.cancel()
