"""A Kafka cluster made of Python: one controller and brokers that speak the wire protocol.

It applies what is valid as a controller does, and copies what real brokers do to requests. Every
method may be called from any thread.
"""

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kafka.protocol.sasl import SaslHandshakeResponse

from app.domain.authorization import AclBinding
from app.domain.entities import ClientQuotaEntity
from app.localdev.processes import free_ports
from tests.testkit.event_loops import OwnLoop, any_thread
from tests.testkit.fake_kafka.controller import (
    CONTROLLER_ID,
    FIRST_OFFSET,
    FakeController,
    ForwardQueue,
    Patience,
)
from tests.testkit.fake_kafka.messages import (
    Alteration,
    acls_answer,
    alter_answer,
    alter_asked,
    configs_answer,
    describe_answer,
    describe_asked,
    encoded,
    quorum_answer,
)
from tests.testkit.fake_kafka.quotas import Values, Verdict, apply, describe, for_all
from tests.testkit.fake_kafka.server import (
    ALTER,
    DESCRIBE,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    SASL_HANDSHAKE,
    FakeBroker,
    Reply,
    closing,
    silent,
)
from tests.testkit.history.events import LogRecord, Write

HELD: Final = math.inf
"""Instead of a delay: applied when the test says so."""

_SECURITY_DISABLED: Final = 54
_REQUEST_TIMED_OUT: Final = 7
_UNSUPPORTED_SASL_MECHANISM: Final = 33


@dataclass(frozen=True)
class Fault:
    """What happens to one alteration; every default is that of a healthy cluster.

    Attributes:
        delay_s: How long the broker waits before it does anything.
        applies: Null: forwarded as always. Otherwise: after how many seconds the controller handles
            it, once for each; none for never.
        reply: Instead of the answer. With an immediate apply, or forwarded as always, it comes
            after the apply.
        refused: The code that the controller refuses with.
        error_code: The code that the answer says, whatever was done.
        message: The text beside that code.
    """

    delay_s: float = 0.0
    applies: tuple[float, ...] | None = None
    reply: Reply | None = None
    refused: int | None = None
    error_code: int | None = None
    message: str | None = None


DROP_BEFORE_APPLYING: Final = Fault(applies=(), reply=closing)
DROP_AFTER_APPLYING: Final = Fault(reply=closing)
NEVER_ANSWER: Final = Fault(reply=silent)


def apply_late(after_s: float) -> Fault:
    """Apply it when its connection has been closed for long."""
    return Fault(applies=(after_s,), reply=closing)


def time_out_and_apply_late(after_s: float) -> Fault:
    """Answer REQUEST_TIMED_OUT, and apply it all the same."""
    return Fault(applies=(after_s,), error_code=_REQUEST_TIMED_OUT)


FaultSchedule = Callable[[Alteration], Fault | None]
"""Decides for each alteration, validations included; null is no fault."""

Work = Callable[[], list[Verdict]]


class _Image:
    """What one broker has published of the metadata log, ``lag_s`` late; it never goes back."""

    def __init__(self, controller: FakeController) -> None:
        self.lag_s = 0.0
        self._controller = controller
        self._published = 0
        self._quotas: dict[ClientQuotaEntity, Values] = {}

    @property
    def offset(self) -> int:
        """The last offset of the log that this broker shows."""
        self._publish()
        return FIRST_OFFSET + self._published - 1

    @property
    def quotas(self) -> dict[ClientQuotaEntity, Values]:
        self._publish()
        return self._quotas

    def _publish(self) -> None:
        until = datetime.now(UTC) - timedelta(seconds=self.lag_s)
        for record in self._controller.apply_log[self._published :]:
            if record.at > until:
                return
            apply(record.write, self._quotas)
            self._published += 1


class _Node(FakeBroker):
    """One broker: answers from its own image, and forwards what is the controller's."""

    def __init__(self, node_id: int, port: int, cluster: "FakeCluster") -> None:
        answers: dict[int, Callable[[bytes], Awaitable[Any]]] = {
            SASL_HANDSHAKE: self._handshake,
            DESCRIBE: self._describe,
            DESCRIBE_ACLS: self._acls,
            DESCRIBE_CONFIGS: self._configs,
            DESCRIBE_QUORUM: self._quorum,
        }
        replies = {key: self._replying(answer) for key, answer in answers.items()}
        super().__init__({**replies, ALTER: self._alter})
        self.healthy = dict(self.replies)
        self.node_id = node_id
        self.port = port
        self.image = _Image(cluster.controller)
        self.queue = ForwardQueue(cluster.controller, cluster.patience)
        self._cluster = cluster
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self._running = asyncio.Event()
        self._running.set()

    @property
    def listed(self) -> dict[int, int]:
        return self._cluster.listed

    @property
    def published_offset(self) -> int:
        return self.image.offset

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self._opening = asyncio.create_task(self._open(self._listener))

    async def _open(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self.serve, sock=listener)

    def stop(self) -> None:
        """Die: close every connection, accept no more, and forget what waits."""
        if self._opening is not None:
            self._opening.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._listener is not None:
            self._listener.close()
        self.queue.forget()
        self.hang_up()
        for task in self._tasks:
            task.cancel()

    def freeze(self) -> None:
        """Hang: connections stay open, and nothing is done."""
        self._running.clear()
        self.queue.freeze()

    def thaw(self) -> None:
        self._running.set()
        self.queue.thaw()

    async def close(self) -> None:
        self.stop()
        self.queue.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await super().serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()

    async def answer(self, api_key: int, writer: asyncio.StreamWriter, request: bytes) -> None:
        await self._running.wait()
        self.cluster_id = self._cluster.cluster_id
        await super().answer(api_key, writer, request)

    def _replying(self, answer_to: Callable[[bytes], Awaitable[Any]]) -> Reply:
        async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
            answer = await answer_to(request)
            await self._running.wait()
            writer.write(encoded(answer, request))

        return reply

    async def _handshake(self, request: bytes) -> Any:
        return SaslHandshakeResponse(error_code=_UNSUPPORTED_SASL_MECHANISM, mechanisms=[])

    async def _describe(self, request: bytes) -> Any:
        components, strict = describe_asked(request)
        quotas = describe(components, self.image.quotas, strict=strict)
        return describe_answer(message="", quotas=quotas)

    async def _acls(self, request: bytes) -> Any:
        acls = self._cluster.acls
        return acls_answer(code=_SECURITY_DISABLED) if acls is None else acls_answer(acls)

    async def _configs(self, request: bytes) -> Any:
        return configs_answer(request, self._cluster.callback)

    async def _quorum(self, request: bytes) -> Any:
        controller = self._cluster.controller

        def described() -> Any:
            end = FIRST_OFFSET + len(controller.apply_log)
            return quorum_answer(CONTROLLER_ID, controller.epoch, end)

        timed_out = quorum_answer(-1, -1, -1, error_code=_REQUEST_TIMED_OUT)
        return await self.queue.ask(described) or timed_out

    async def _alter(self, writer: asyncio.StreamWriter, request: bytes) -> None:
        alteration = alter_asked(request)
        fault = self._cluster.fault_of(alteration)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        verdicts = await self._verdicts(alteration, fault)
        if fault.error_code is not None:
            verdicts = for_all(alteration.entries, fault.error_code, fault.message)
        await self._running.wait()
        if fault.reply is not None:
            await fault.reply(writer, request)
        else:
            writer.write(encoded(alter_answer(verdicts), request))

    async def _verdicts(self, alteration: Alteration, fault: Fault) -> list[Verdict]:
        """Return the verdicts when the answer is due, which may never be."""

        def work() -> list[Verdict]:
            return self._cluster.controller.alter(alteration, fault.refused)

        if fault.applies is None:
            verdicts: list[Verdict] | None = await self.queue.ask(work)
            if verdicts is None:
                text = "The request timed out."
                return for_all(alteration.entries, _REQUEST_TIMED_OUT, text)
            return verdicts
        applied = self._cluster.apply_at(work, fault.applies)
        if 0.0 in fault.applies or (fault.reply is None and fault.error_code is None):
            return await applied
        return []


class FakeCluster(OwnLoop):
    """Brokers 1 to n; the controller is no broker.

    Attributes:
        cluster_id: Set it to be another cluster behind the same addresses.
        acls: What DescribeAcls tells; null where the cluster has no authorizer.
        callback: The ``client.quota.callback.class`` of each broker.
        schedule: Chooses the fault of every alteration for which none was announced.
        alterations: Every alteration that reached a broker, validations included.
        held: What is to be applied when the test says so.
        listed: The port of each broker that metadata lists.
    """

    def __init__(self, brokers: int, patience: Patience) -> None:
        super().__init__()
        self.controller = FakeController()
        self.patience = patience
        self.cluster_id = "fake"
        self.acls: Sequence[AclBinding] | None = ()
        self.callback: str | None = None
        self.schedule: FaultSchedule | None = None
        self.alterations: list[Alteration] = []
        self.held: list[Callable[[], None]] = []
        self.listed: dict[int, int] = {}
        self._announced: list[Fault] = []
        self._timers: set[asyncio.TimerHandle] = set()
        ports = dict(enumerate(free_ports(brokers), 1))
        self._nodes = {number: _Node(number, port, self) for number, port in ports.items()}
        for number in self._nodes:
            self.start(number)

    async def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    @property
    def apply_log(self) -> list[LogRecord]:
        """Every record of the metadata log so far: the oracle."""
        return list(self.controller.apply_log)

    @property
    def quotas(self) -> dict[ClientQuotaEntity, Values]:
        """What holds by the metadata log."""
        return self._quotas()

    @any_thread
    def _quotas(self) -> dict[ClientQuotaEntity, Values]:
        return {entity: dict(values) for entity, values in self.controller.quotas.items()}

    def sent(self, user: str) -> int:
        """Return how many alterations of a user have reached a broker, without validations."""
        entity = ClientQuotaEntity.of({"user": user})
        return sum(
            not each.validate_only and any(entry.entity == entity for entry in each.entries)
            for each in list(self.alterations)
        )

    def received(self, api_key: int, broker_id: int) -> int:
        return self._nodes[broker_id].received[api_key]

    def losses(self, broker_id: int) -> int:
        return self._nodes[broker_id].queue.losses

    # Alterations

    @any_thread
    def fail_next(self, fault: Fault) -> None:
        """Let a fault happen to the next alteration that is no validation."""
        self._announced.append(fault)

    def fault_of(self, alteration: Alteration) -> Fault:
        """Note an alteration, and return what happens to it."""
        self.alterations.append(alteration)
        if self._announced and not alteration.validate_only:
            return self._announced.pop(0)
        return (self.schedule and self.schedule(alteration)) or Fault()

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
            elif delay == HELD:
                self.held.append(deliver)
            else:
                self._timers.add(loop.call_later(delay, deliver))
        return first

    @any_thread
    def apply_held(self) -> None:
        held, self.held = self.held, []
        for deliver in held:
            deliver()

    @any_thread
    def store(self, entity: ClientQuotaEntity, values: Mapping[str, float]) -> None:
        """Set quotas as another tool would."""
        self.controller.append([Write(entity, key, value) for key, value in values.items()])

    # The controller, and the connections of brokers to it

    @any_thread
    def pause_controller(self) -> None:
        """Let the controller hang: what is sent to it waits in its buffers."""
        self.controller.pause()

    @any_thread
    def resume_controller(self) -> None:
        """Let it go on, with everything that waited."""
        self.controller.resume()

    @any_thread
    def change_controller(self) -> None:
        """Let another take over; what the old one had not handled is lost to it, not to brokers."""
        self.controller.change()
        for node in self._nodes.values():
            node.queue.cut()

    @any_thread
    def hold_requests(self, broker_id: int) -> None:
        """Keep the broker's requests to the controller in the network."""
        self._nodes[broker_id].queue.hold("requests")

    @any_thread
    def hold_answers(self, broker_id: int) -> None:
        """Keep the controller's answers to the broker in the network."""
        self._nodes[broker_id].queue.hold("answers")

    @any_thread
    def let_go(self, broker_id: int) -> None:
        self._nodes[broker_id].queue.let_go()

    @any_thread
    def cut(self, broker_id: int) -> None:
        """Lose the connection to the controller: the broker queues again, in reverse order."""
        self._nodes[broker_id].queue.cut()

    # One broker

    @any_thread
    def lag(self, broker_id: int, seconds: float) -> None:
        """Let a broker show later what is committed."""
        self._nodes[broker_id].image.lag_s = seconds

    @any_thread
    def reply_with(self, api_key: int, reply: Reply | None, *, broker_id: int = 1) -> None:
        """Answer every request of a kind with this; null is the healthy answer again."""
        node = self._nodes[broker_id]
        node.replies[api_key] = reply or node.healthy[api_key]

    @any_thread
    def freeze(self, broker_id: int) -> None:
        """Let a broker hang: connections are accepted and stay open, nothing is answered."""
        self._nodes[broker_id].freeze()

    @any_thread
    def thaw(self, broker_id: int) -> None:
        self._nodes[broker_id].thaw()

    @any_thread
    def hang_up(self, broker_id: int) -> None:
        self._nodes[broker_id].hang_up()

    @any_thread
    def kill(self, broker_id: int, *, still_listed: bool = False) -> None:
        """Kill a broker: its queue is lost; what the controller has got of it is not."""
        self._nodes[broker_id].stop()
        if not still_listed:
            self.fence(broker_id)

    @any_thread
    def fence(self, broker_id: int) -> None:
        """Do not count a broker as live any more; it goes on answering."""
        self.listed.pop(broker_id, None)

    @any_thread
    def unfence(self, broker_id: int) -> None:
        self.listed[broker_id] = self._nodes[broker_id].port

    @any_thread
    def start(self, broker_id: int) -> None:
        self._nodes[broker_id].start()
        self.unfence(broker_id)


@asynccontextmanager
async def fake_cluster(
    brokers: int = 1, *, socket_patience_s: float = 30.0, queue_patience_s: float = 60.0
) -> AsyncIterator[FakeCluster]:
    """Run a fake cluster in this event loop; ``in_a_thread`` gives it one of its own."""
    cluster = FakeCluster(brokers, Patience(socket_patience_s, queue_patience_s))
    try:
        yield cluster
    finally:
        await cluster.close()
