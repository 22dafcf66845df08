"""Which brokers there are, and a connection to the requested one."""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from app.domain.errors import NotSentError, WrongClusterError
from app.kafka.cluster_view import (
    BrokerOrder,
    ClusterView,
    ask_view,
    no_live_broker,
    not_live,
    overcrowded,
    shutting_down,
    silent,
    wrong_cluster,
)
from app.kafka.config import KafkaSettings, ssl_context
from app.kafka.connection import BrokerConnection
from app.kafka.handshake import Address, LoginRefusedError, connect
from app.kafka.pool import BrokerLease, ConnectionPool, Lease, PoolSlot, Purpose
from app.service.ports.metrics import DependencyMetrics, Uncounted
from app.service.runtime.clock import USUAL, Patience

T = TypeVar("T")
logger = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0

_WHAT_TO_DO: Final = (
    "Check what QUOTAS_KAFKA_BOOTSTRAP_SERVERS leads to; to serve the other cluster, restart the "
    "service."
)


class Brokers:
    """Connections to the brokers of one cluster; nothing runs while nothing is asked.

    The first address in line that is of a live broker is preferred: it stays so until it fails and
    goes to the end of the line. A request is never repeated here.

    The cluster is the one that the settings name, else the first that answers. Each connection asks
    for it before its first request, for where a broker of it listened a broker of another cluster
    may listen now; those are refused, until the first cluster is back or the process ends.

    Args:
        settings: Where the brokers are, and as which user they are asked.
        metrics: Counts the requests.
        context: For TLS; null makes one of the settings.
        one_login: Try a refused password with no other broker: each try may be counted somewhere.
        patience: How long brokers may take.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        metrics: DependencyMetrics | None = None,
        *,
        context: ssl.SSLContext | None = None,
        one_login: bool = False,
        patience: Patience = USUAL,
    ) -> None:
        self.patience = patience
        self._settings = settings
        self._metrics = metrics or Uncounted()
        self._context = context or ssl_context(settings)
        self._one_login = one_login
        self._login_refused = False
        self._pools: dict[Address, ConnectionPool] = {}
        self._order = BrokerOrder(settings.addresses)
        self._view: ClusterView | None = None
        self._losses = 0
        self._cluster_id = settings.cluster_id
        self._other_cluster: str | None = None
        self._refreshing = asyncio.Lock()
        self._closed = False

    async def lease(self, broker_id: int | None, purpose: Purpose, deadline: float) -> BrokerLease:
        """Take a connection to one broker; null takes the first that can be reached.

        Where a connection was lost meanwhile it is taken anew: another broker may listen there now.

        Raises:
            NotSentError: None can be reached before ``deadline`` (of the event loop's clock).
        """
        losses = self._losses
        lease = await self._lease(broker_id, purpose, deadline)
        if self._losses == losses:
            return lease
        lease.release()
        return await self._lease(broker_id, purpose, deadline)

    async def _lease(self, broker_id: int | None, purpose: Purpose, deadline: float) -> BrokerLease:
        view = await self.view(deadline)
        if broker_id is not None and broker_id not in view.addresses:
            view = await self.view(deadline, fresh=True)
        wanted = view.addresses if broker_id is None else _only(view.addresses, broker_id)
        ids = {address: number for number, address in wanted.items()}

        async def lease_at(address: Address, lease: Lease) -> BrokerLease:
            return BrokerLease(view.cluster_id, ids[address], address, lease)

        return await self._first_that_works(list(ids), purpose, deadline, lease_at)

    async def preferred(self, deadline: float) -> int:
        """Return the broker that requests without a wish go to; another only after it failed.

        Raises:
            NotSentError: None can be reached before ``deadline``.
        """
        view = await self.view(deadline)
        ids = {address: number for number, address in view.addresses.items()}
        if ids and self._pool(first := self._order.first(ids)).in_touch:
            return ids[first]
        lease = await self.lease(None, Purpose.READ, deadline)
        lease.release()
        return lease.broker_id

    @property
    def number(self) -> int:
        """How many brokers can be tried."""
        return len(self._order.addresses)

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that is served, null until a broker has reported it."""
        return self._cluster_id

    def another_answers(self) -> bool:
        """Tell whether brokers of another cluster answer, and none of the one that is served."""
        return self._other_cluster is not None

    def check_cluster(self) -> None:
        """Refuse to serve what rests on a cluster for which another cluster answers.

        Raises:
            WrongClusterError: Another one does.
        """
        if self._other_cluster is not None:
            raise wrong_cluster(self._other_cluster, self._cluster_id)

    async def watch(self) -> None:
        """Look for the cluster whenever a connection was lost, whether or not requests come."""
        loop = asyncio.get_running_loop()
        away = False
        while True:
            try:
                await self.view(loop.time() + self.patience.broker_answer_s)
            except WrongClusterError:
                away = False
            except NotSentError as error:
                if not away:
                    logger.warning("no broker responds: %s", error.detail)
                away = True
            else:
                if away:
                    logger.info("brokers respond")
                away = False
            await asyncio.sleep(_LOOK_EVERY_S)

    async def view(self, deadline: float, *, fresh: bool = False) -> ClusterView:
        """Return the cluster's id and live brokers: from memory while all is well, or fresh.

        An answer that no broker is live is asked for again each time: the controller fences brokers
        that it has had no news of for a while, even the one that answers, and lets them in again.
        One caller asks for all, so the most patient one waits no longer than any read.

        Raises:
            WrongClusterError: Brokers of another cluster answer, and none of this one.
            NotSentError: No broker can be reached before ``deadline``.
        """
        if self._view is not None and not fresh:
            return self._view
        wanted_at = time.monotonic() if fresh else 0.0
        try:
            async with asyncio.timeout_at(deadline), self._refreshing:
                listed = self._view
                if listed is not None and listed.asked_at >= wanted_at:
                    return listed
                ask_by = min(
                    deadline, asyncio.get_running_loop().time() + self.patience.broker_answer_s
                )
                view = await self._first_that_works(
                    self._order.addresses, Purpose.READ, ask_by, self._ask_view
                )
                self._note_other(None)
                self._view = view if view.addresses else None
                self._order.adopt(view.addresses.values())
                return view
        except TimeoutError as error:
            raise silent("The brokers") from error
        except WrongClusterError as error:
            self._note_other(error)
            raise

    @property
    def login_was_refused(self) -> bool:
        """Whether a broker did not accept the password, where one login is all there may be."""
        return self._login_refused

    def connections(self) -> Mapping[str, int]:
        """Return how many connections are open, by state: idle or busy."""
        pools = self._pools.values()
        idle = sum(pool.idle for pool in pools)
        return {"idle": idle, "busy": sum(pool.open for pool in pools) - idle}

    def invalidate_metadata(self) -> None:
        """Ask anew who is alive before the next request; whoever does not answer then has failed.

        For a request that waits for the controller: its broker may be well.
        """
        self._view = None

    def mark_failed(self, address: Address) -> None:
        """Put a broker that failed at the end of the line, and ask anew who is alive."""
        self.invalidate_metadata()
        self._order.move_to_end(address)

    def _lost(self) -> None:
        self._losses += 1
        self.invalidate_metadata()

    async def close(self) -> None:
        """Drop every connection; requests in flight end with ``AnswerLostError``."""
        self._closed = True
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))

    async def _first_that_works(
        self,
        addresses: Sequence[Address],
        purpose: Purpose,
        deadline: float,
        use: Callable[[Address, Lease], Awaitable[T]],
    ) -> T:
        """Try each address in line, with an equal share of the time that is left."""
        failure: NotSentError | None = None
        other_cluster: WrongClusterError | None = None
        left = set(addresses)
        while left:
            address = self._order.first(left)
            reserved = await self._wait_for_slot(address, purpose, deadline)
            if self._order.first(left) != address:
                reserved.give_up()
                continue
            share = (deadline - asyncio.get_running_loop().time()) / len(left)
            left.remove(address)
            try:
                async with asyncio.timeout(share):
                    return await use(address, await reserved.lease())
            except TimeoutError:
                failure = silent(f"The broker {address[0]}:{address[1]}")
            except WrongClusterError as error:
                other_cluster = error
                self._pool(address).retire()
            except NotSentError as error:
                if self._one_login and isinstance(error, LoginRefusedError):
                    self._login_refused = True
                    raise
                failure = error
            self.mark_failed(address)
        raise other_cluster or failure or no_live_broker()

    async def _wait_for_slot(self, address: Address, purpose: Purpose, deadline: float) -> PoolSlot:
        """Wait for a slot: that others hang on a broker does not make it fail."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool(address).reserve(purpose)
        except TimeoutError as error:
            raise overcrowded(address) from error

    def _pool(self, address: Address) -> ConnectionPool:
        if self._closed:
            raise shutting_down()
        if address not in self._pools:
            self._pools[address] = ConnectionPool(partial(self._dial, address), self._lost)
        return self._pools[address]

    async def _dial(self, address: Address) -> BrokerConnection:
        connection = await connect(address, self._settings, self._context, self._metrics)
        try:
            await self._checked_view(connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _ask_view(self, _: Address, lease: Lease) -> ClusterView:
        try:
            return await self._checked_view(lease.connection)
        finally:
            lease.release()

    async def _checked_view(self, connection: BrokerConnection) -> ClusterView:
        view = await ask_view(connection)
        if self._cluster_id is None:
            self._cluster_id = view.cluster_id or None
        elif view.cluster_id != self._cluster_id:
            raise wrong_cluster(view.cluster_id, self._cluster_id)
        return view

    def _note_other(self, error: WrongClusterError | None) -> None:
        """Note whether another cluster answers, and log each change of that."""
        found = None if error is None else error.found
        if found == self._other_cluster:
            return
        self._other_cluster = found
        if error is None:
            logger.warning("the cluster %r answers again", self._cluster_id)
        else:
            logger.error("%s Nothing is served or concluded. %s", error.detail, _WHAT_TO_DO)


def _only(addresses: Mapping[int, Address], broker_id: int) -> Mapping[int, Address]:
    if broker_id not in addresses:
        raise not_live(broker_id)
    return {broker_id: addresses[broker_id]}
