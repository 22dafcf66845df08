"""A Kafka cluster made of Python: one controller and brokers that speak the wire protocol.

It copies the controller's semantics with its faults, and
what real brokers do to requests Every method may be called from any thread.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from app.domain.authorization import AclBinding
from app.domain.entities import ClientQuotaEntity
from app.localdev.processes import free_ports
from tests.testkit.event_loops import OwnLoop, any_thread
from tests.testkit.fake_kafka.broker import FakeNode
from tests.testkit.fake_kafka.controller import Applied, FakeController, Patience
from tests.testkit.fake_kafka.quotas import Change, Values
from tests.testkit.fake_kafka.server import Reply
from tests.testkit.fake_kafka.state import Alteration, ClusterState, Fault, FaultSchedule


class FakeCluster:
    """Brokers 1 to n; the controller is no broker."""

    def __init__(self, brokers: int, patience: Patience) -> None:
        self.own_loop = OwnLoop()
        self._controller = FakeController(self._resigned)
        self._state = ClusterState(self._controller, patience)
        self._nodes = {number: FakeNode(number, self._state) for number in range(1, brokers + 1)}
        for node, port in zip(self._nodes.values(), free_ports(brokers), strict=True):
            node.port = port
            self.start(node.node_id)

    async def close(self) -> None:
        """End everything."""
        self._state.close()
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    @property
    def bootstrap_servers(self) -> str:
        """Where the brokers listen."""
        return ",".join(self.address_of(number) for number in self._nodes)

    def address_of(self, broker_id: int) -> str:
        """Return where one broker listens."""
        return self._nodes[broker_id].bootstrap_servers

    # What happened

    @property
    def apply_log(self) -> list[Applied]:
        """Every record of the metadata log so far: the oracle."""
        return list(self._controller.apply_log)

    @property
    def alterations(self) -> list[Alteration]:
        """Every alteration that reached a broker, validations included."""
        return list(self._state.alterations)

    @property
    def quotas(self) -> dict[ClientQuotaEntity, Values]:
        """What holds by the metadata log."""
        return self._quotas()

    @any_thread
    def _quotas(self) -> dict[ClientQuotaEntity, Values]:
        return {entity: dict(values) for entity, values in self._controller.quotas.items()}

    def received(self, api_key: int, broker_id: int) -> int:
        """Return how many requests of a kind a broker has got."""
        return self._nodes[broker_id].received.get(api_key, 0)

    def forwarding(self, broker_id: int) -> int:
        """Return how many requests of a broker the controller has not answered."""
        return self._nodes[broker_id].apis.queue.depth

    def losses(self, broker_id: int) -> int:
        """Return how often a broker has lost its connection to the controller."""
        return self._nodes[broker_id].apis.queue.losses

    # Alterations

    @any_thread
    def fail_next(
        self,
        fault: Fault,
        *,
        times: int = 1,
        broker_id: int | None = None,
        validate_only: bool = False,
    ) -> None:
        """Let a fault happen to the next alterations, through one broker or any."""
        for _ in range(times):
            self._state.faults.announce(fault, broker_id=broker_id, validate_only=validate_only)

    @any_thread
    def decide_by(self, schedule: FaultSchedule | None) -> None:
        """Let a function choose the fault of every alteration that has none yet."""
        self._state.faults.schedule = schedule

    @any_thread
    def apply_held(self) -> int:
        """Apply everything that was held; return how many that were."""
        held, self._state.held = self._state.held, []
        for deliver in held:
            deliver()
        return len(held)

    @any_thread
    def store(self, entity: ClientQuotaEntity, values: Mapping[str, float | None]) -> None:
        """Change quotas as another tool would; null removes."""
        now = self._controller.quotas.get(entity, {})
        changes = [
            Change(entity, key, value) for key, value in values.items() if now.get(key) != value
        ]
        self._controller.append(0, changes)

    # The controller

    @any_thread
    def pause_controller(self) -> None:
        """Let the controller hang: what is sent to it waits in its buffers."""
        self._controller.pause()

    @any_thread
    def resume_controller(self) -> None:
        """Let it go on, with everything that waited."""
        self._controller.resume()

    @any_thread
    def change_controller(self, *, epochs: int = 1) -> int:
        """Let another take over; what the old one had not handled is lost to it, not to brokers."""
        self._controller.change(epochs)
        for node in self._nodes.values():
            node.apis.queue.cut()
        return self._controller.epoch

    def _resigned(self) -> None:
        self.change_controller(epochs=2)

    @any_thread
    def commit_within(self, seconds: float) -> None:
        """Set how long an append takes to be committed and answered."""
        self._controller.commit_s = seconds

    # Between a broker and the controller

    @any_thread
    def hold_requests(self, broker_id: int) -> None:
        """Keep the broker's requests to the controller in the network."""
        self._nodes[broker_id].apis.queue.hold("requests")

    @any_thread
    def hold_answers(self, broker_id: int) -> None:
        """Keep the controller's answers to the broker in the network."""
        self._nodes[broker_id].apis.queue.hold("answers")

    @any_thread
    def let_go(self, broker_id: int) -> None:
        """Let arrive what was held."""
        self._nodes[broker_id].apis.queue.let_go()

    @any_thread
    def cut(self, broker_id: int) -> None:
        """Lose the connection to the controller: the broker queues again, in reverse order."""
        self._nodes[broker_id].apis.queue.cut()

    @any_thread
    def isolate(self, broker_id: int) -> None:
        """Keep a broker from the controller: it shows what it has, and says no error."""
        self._nodes[broker_id].apis.image.cut_off = True
        self._nodes[broker_id].apis.queue.sever()

    @any_thread
    def rejoin(self, broker_id: int) -> None:
        """End that."""
        self._nodes[broker_id].apis.image.cut_off = False
        self._nodes[broker_id].apis.queue.mend()

    # One broker

    @any_thread
    def lag(self, broker_id: int, seconds: float) -> None:
        """Let a broker show later what is committed."""
        self._nodes[broker_id].apis.image.lag_s = seconds

    @any_thread
    def delay(self, api_key: int, seconds: float, *, broker_id: int) -> None:
        """Keep every answer of a kind back."""
        self._nodes[broker_id].delays[api_key] = seconds

    @any_thread
    def say(self, api_key: int, code: int | None, *, broker_id: int) -> None:
        """Answer every request of a kind with this code; null is the truth again."""
        codes = self._nodes[broker_id].apis.codes
        codes.pop(api_key, None)
        if code is not None:
            codes[api_key] = code

    @any_thread
    def reply_with(self, api_key: int, reply: Reply | None, *, broker_id: int) -> None:
        """Answer every request of a kind with this; null is the healthy answer again."""
        node = self._nodes[broker_id]
        node.replies[api_key] = node.healthy[api_key] if reply is None else reply

    @any_thread
    def freeze(self, broker_id: int) -> None:
        """Let a broker hang: connections are accepted and stay open, nothing is answered."""
        self._nodes[broker_id].freeze()

    @any_thread
    def thaw(self, broker_id: int) -> None:
        """Let it go on."""
        self._nodes[broker_id].thaw()

    @any_thread
    def hang_up(self, broker_id: int) -> None:
        """Close every connection to a broker."""
        self._nodes[broker_id].hang_up()

    @any_thread
    def kill(self, broker_id: int, *, still_listed: bool = False) -> None:
        """Kill a broker: its queue is lost; what the controller has got of it is not."""
        self._nodes[broker_id].stop()
        if not still_listed:
            self._state.listed.pop(broker_id, None)

    @any_thread
    def fence(self, broker_id: int) -> None:
        """Do not count a broker as live any more; it goes on answering."""
        self._state.listed.pop(broker_id, None)

    @any_thread
    def unfence(self, broker_id: int) -> None:
        """Count it as live again."""
        self._state.listed[broker_id] = self._nodes[broker_id].port

    @any_thread
    def start(self, broker_id: int) -> None:
        """Start it again, on its port."""
        self._nodes[broker_id].start()
        self._state.listed[broker_id] = self._nodes[broker_id].port

    # Who may do what

    @any_thread
    def let_in(self, accounts: Mapping[str, str]) -> None:
        """Set the passwords of SASL PLAIN; without a handshake a caller is ``User:ANONYMOUS``."""
        self._state.accounts = dict(accounts)

    @any_thread
    def permit(self, principal: str, operations: Iterable[str] | None) -> None:
        """Set a principal's own operations on the cluster; null is all of them."""
        rights = {name: each for name, each in self._state.rights.items() if name != principal}
        if operations is not None:
            rights[principal] = frozenset(operations)
        self._state.rights = rights

    @any_thread
    def set_acls(self, acls: Sequence[AclBinding] | None) -> None:
        """Set what DescribeAcls tells; null is a cluster without an authorizer."""
        self._state.acls = acls

    @any_thread
    def set_cluster_id(self, cluster_id: str) -> None:
        """Be another cluster behind the same addresses."""
        self._state.cluster_id = cluster_id

    @any_thread
    def set_callback(self, name: str | None) -> None:
        """Set ``client.quota.callback.class``."""
        self._state.callback = name


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
