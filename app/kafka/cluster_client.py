"""Which brokers there are, a connection to the requested one, and requests that only read."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from app.domain.errors import NotSentError, UnsupportedVersionError, WrongClusterError
from app.kafka.config import Address, KafkaSettings, ssl_context
from app.kafka.connection import BrokerConnection, BrokerLease, ConnectionPool, Purpose, ask
from app.kafka.errors import AnswerLostError, Loss, unreachable
from app.kafka.handshake import LoginRefusedError, connect
from app.metrics import BrokerMetrics
from app.service.runtime.clock import USUAL, Patience

T = TypeVar("T")
logger = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0
_TRIES: Final = 3
"""So often a read is sent whose connection is closed meanwhile."""

_WHAT_TO_DO: Final = (
    "Check what the bootstrap servers lead to; to serve the other cluster, restart the service."
)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster's id, and where the live brokers listen.

    ``asked_at`` is by ``time.monotonic``, finer than the clock of some event loops.
    """

    cluster_id: str
    addresses: Mapping[int, Address]
    asked_at: float


class Brokers:
    """Connections to the brokers of one cluster; nothing runs while nothing is asked.

    The first address in order that is of a live broker is preferred: it stays so until it fails and
    becomes the last.

    The cluster is the one that the settings name, else the first that answers. Each connection asks
    for it before its first request, for where a broker of it listened a broker of another cluster
    may listen now; those are refused, until the first cluster is back or the process ends.

    Args:
        settings: Where the brokers are, and as which user they are asked.
        metrics: Counts the requests.
        context: For TLS; null makes one of the settings.
        one_login: Try a refused password with no other broker: each try may be counted somewhere.
        patience: How long brokers may take.

    Attributes:
        served_as: Returns the name under which a cluster is served already; null: it is not.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        metrics: BrokerMetrics | None = None,
        *,
        context: ssl.SSLContext | None = None,
        one_login: bool = False,
        patience: Patience = USUAL,
    ) -> None:
        self.patience = patience
        self.served_as: Callable[[str], str | None] = lambda _cluster_id: None
        self.login_was_refused = False
        """Whether a broker did not accept the password, where one login is all there may be."""
        self._settings = settings
        self._metrics = metrics or BrokerMetrics()
        self._context = context or ssl_context(settings)
        self._one_login = one_login
        self._pools: dict[Address, ConnectionPool] = {}
        self._order = random.sample(settings.addresses, len(settings.addresses))
        self._view: ClusterView | None = None
        self._cluster_id = settings.cluster_id
        self._other: WrongClusterError | None = None
        self._refreshing = asyncio.Lock()
        self._closed = False

    async def read(
        self,
        question: Callable[[BrokerLease], Awaitable[T]],
        *,
        broker_id: int | None = None,
        timeout_s: float,
        purpose: Purpose = Purpose.READ,
    ) -> T:
        """Ask a broker something that changes nothing; null picks a broker.

        It is asked again where the connection is closed. Where it is about the quorum the broker
        passes it on, so that its silence is not its own.

        Raises:
            NotSentError: No broker could be reached, or it did not answer in time.
            BrokerError: The answer cannot be read.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        tries = 0
        while True:
            tries += 1
            lease = await self.lease(broker_id, purpose, deadline)
            try:
                async with asyncio.timeout_at(deadline):
                    return await question(lease)
            except AnswerLostError as lost:
                self._mark_failed(lease.pool.address)
                if lost.loss is not Loss.CLOSED or tries == _TRIES:
                    raise lost.as_read() from lost
            except TimeoutError as error:
                if purpose is Purpose.QUORUM:
                    self.invalidate_metadata()
                else:
                    self._mark_failed(lease.pool.address)
                detail = f"Broker {lease.broker_id} did not answer within {timeout_s:.3g} s."
                raise unreachable(detail) from error
            finally:
                lease.release()

    async def lease(
        self, broker_id: int | None, purpose: Purpose, deadline: float, *, again: bool = True
    ) -> BrokerLease:
        """Take a connection to one broker; null takes the first that can be reached.

        Where a connection was lost meanwhile it is taken anew: another broker may listen there now.

        Raises:
            NotSentError: None can be reached before ``deadline`` (of the event loop's clock).
        """
        view = await self.view(deadline)
        if broker_id is not None and broker_id not in view.addresses:
            view = await self.view(deadline, fresh=True)
            if broker_id not in view.addresses:
                raise unreachable(
                    f"Broker {broker_id} is not among the live brokers of the cluster."
                )
        ids = {
            address: number
            for number, address in view.addresses.items()
            if broker_id in (None, number)
        }

        async def identify(lease: BrokerLease) -> BrokerLease:
            lease.broker_id, lease.cluster_id = ids[lease.pool.address], view.cluster_id
            return lease

        lease = await self._first_that_works(ids, purpose, deadline, identify)
        if again and self._view is not view:
            lease.release()
            return await self.lease(broker_id, purpose, deadline, again=False)
        return lease

    async def preferred(self, deadline: float) -> int:
        """Return the broker that requests without a wish go to; another only after it failed.

        Raises:
            NotSentError: None can be reached before ``deadline``.
        """
        view = await self.view(deadline)
        ids = {address: number for number, address in view.addresses.items()}
        if ids and self._pool(first := self._first(ids)).open:
            return ids[first]
        lease = await self.lease(None, Purpose.READ, deadline)
        lease.release()
        return lease.broker_id

    @property
    def number(self) -> int:
        """How many brokers can be tried."""
        return len(self._order)

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that is served, null until a broker has reported it."""
        return self._cluster_id

    @property
    def answering(self) -> str | None:
        """The id of the cluster that answered last, be it served or not; null before one has."""
        return self._cluster_id if self._other is None else self._other.found

    def another_answers(self) -> bool:
        """Tell whether brokers of another cluster answer, and none of the one that is served."""
        return self._other is not None

    def check_cluster(self) -> None:
        """Refuse to serve what rests on a cluster for which another cluster answers.

        Raises:
            WrongClusterError: Another one does, or one that is served under another name.
        """
        if self._other is not None:
            raise WrongClusterError(self._other.detail, found=self._other.found)
        if self._cluster_id is not None:
            self._refuse_twice(self._cluster_id)

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
        if self._view is not None and self.served_as(self._view.cluster_id):
            self.invalidate_metadata()
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
                    self._order, Purpose.READ, ask_by, self._ask_view
                )
                self._note_other(None)
                self._view = view if view.addresses else None
                self._adopt(view.addresses.values())
                return view
        except TimeoutError as error:
            raise unreachable("The brokers did not answer in time.") from error
        except WrongClusterError as error:
            self._note_other(error)
            raise

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

    async def close(self) -> None:
        """Drop every connection; requests in flight end with ``AnswerLostError``."""
        self._closed = True
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))

    async def _first_that_works(
        self,
        addresses: Iterable[Address],
        purpose: Purpose,
        deadline: float,
        use: Callable[[BrokerLease], Awaitable[T]],
    ) -> T:
        """Try each address in order, with an equal share of the time that is left.

        That others hang on a broker does not make it fail: its slots are waited for. Where it
        fails meanwhile another address is the first.
        """
        failure: NotSentError | None = None
        other_cluster: WrongClusterError | None = None
        left = set(addresses)
        while left:
            address = self._first(left)
            pool, broker = self._pool(address), f"broker {address[0]}:{address[1]}"
            slot = pool.slots[purpose]
            try:
                async with asyncio.timeout_at(deadline):
                    await slot.acquire()
            except TimeoutError as error:
                raise unreachable(f"Too many requests wait for the {broker}.") from error
            if self._first(left) != address:
                slot.release()
                continue
            share = (deadline - asyncio.get_running_loop().time()) / len(left)
            left.remove(address)
            try:
                async with asyncio.timeout(share):
                    return await use(await pool.lease(slot))
            except TimeoutError:
                failure = unreachable(f"The {broker} did not answer in time.")
            except WrongClusterError as error:
                other_cluster = error
                pool.retire()
            except NotSentError as error:
                if self._one_login and isinstance(error, LoginRefusedError):
                    self.login_was_refused = True
                    raise
                failure = error
            self._mark_failed(address)
        raise other_cluster or failure or no_live_broker()

    def _pool(self, address: Address) -> ConnectionPool:
        if self._closed:
            raise unreachable("The service is shutting down.")
        if address not in self._pools:
            self._pools[address] = ConnectionPool(address, self._dial, self.invalidate_metadata)
        return self._pools[address]

    async def _dial(self, address: Address) -> BrokerConnection:
        connection = await connect(address, self._settings, self._context, self._metrics)
        try:
            await self._read_view(connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _ask_view(self, lease: BrokerLease) -> ClusterView:
        try:
            return await self._read_view(lease.connection)
        finally:
            lease.release()

    async def _read_view(self, connection: BrokerConnection) -> ClusterView:
        asked_at = time.monotonic()
        try:
            answer = await ask(connection, MetadataRequest(topics=[]), MetadataResponse)
        except UnsupportedVersionError as error:
            raise unreachable(f"{error.detail} Is this the listener of a controller?") from error
        except AnswerLostError as error:
            raise unreachable(error.detail) from error
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        view = ClusterView(answer.cluster_id or "", addresses, asked_at)
        if self._cluster_id is not None and view.cluster_id != self._cluster_id:
            raise WrongClusterError(
                f"The brokers are of the cluster {view.cluster_id!r}, and this service is for "
                f"{self._cluster_id!r}; nothing was sent.",
                found=view.cluster_id,
            )
        self._refuse_twice(view.cluster_id)
        self._cluster_id = view.cluster_id or None
        return view

    def _refuse_twice(self, cluster_id: str) -> None:
        if name := self.served_as(cluster_id):
            raise WrongClusterError(
                f"The brokers are of the cluster {cluster_id!r}, which is served as {name!r} "
                "already; nothing was sent.",
                found=cluster_id,
            )

    def _note_other(self, error: WrongClusterError | None) -> None:
        """Note whether another cluster answers, and log each change of that."""
        before, self._other = self._other, error
        if (before and before.detail) == (error and error.detail):
            return
        if error is None:
            logger.warning("the cluster %r answers again", self._cluster_id)
        else:
            logger.error("%s Nothing is served or concluded. %s", error.detail, _WHAT_TO_DO)

    def _first(self, addresses: Iterable[Address]) -> Address:
        return min(addresses, key=self._order.index)

    def _mark_failed(self, address: Address) -> None:
        """Try every other broker before this one, and ask anew who is alive."""
        self.invalidate_metadata()
        if address in self._order:
            self._order.remove(address)
            self._order.append(address)

    def _adopt(self, live: Iterable[Address]) -> None:
        """Take in who is alive: newcomers come after the first, who is gone comes last."""
        alive = dict.fromkeys(live)
        listed = [each for each in self._order if each in alive]
        gone = [each for each in self._order if each not in alive]
        new = [each for each in alive if each not in listed]
        self._order = [*listed[:1], *random.sample(new, len(new)), *listed[1:], *gone]


def no_live_broker() -> NotSentError:
    """Return the error for a cluster whose controller counts every broker as fenced."""
    return unreachable("The cluster has no live broker.")
