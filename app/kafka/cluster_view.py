"""What a broker reports of its cluster, the order of brokers, and why none can be used."""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from app.domain.errors import NotSentError, UnsupportedVersionError, WrongClusterError
from app.kafka.connection import UNREACHABLE, AnswerLostError, BrokerConnection, ask, newest_common
from app.kafka.handshake import Address


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster's id, and where the live brokers listen.

    ``asked_at`` is by ``time.monotonic``, finer than the clock of some event loops.
    """

    cluster_id: str
    addresses: Mapping[int, Address]
    asked_at: float


async def ask_view(connection: BrokerConnection) -> ClusterView:
    """Ask for it.

    Raises:
        NotSentError: No answer, or none that can be read.
    """
    asked_at = time.monotonic()
    try:
        answer = await _ask_metadata(connection)
    except AnswerLostError as error:
        raise NotSentError(error.detail, code=UNREACHABLE) from error
    addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    return ClusterView(answer.cluster_id or "", addresses, asked_at)


async def _ask_metadata(connection: BrokerConnection) -> Any:
    try:
        version = newest_common(connection, MetadataRequest)
    except UnsupportedVersionError as error:
        detail = f"{error.detail} Is this the listener of a controller?"
        raise NotSentError(detail, code=UNREACHABLE) from error
    return await ask(connection, MetadataRequest(topics=[]), version, MetadataResponse)


class BrokerOrder:
    """Every address, the preferred first, those that failed last."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._order = random.sample(addresses, len(addresses))

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All of them, in order."""
        return tuple(self._order)

    def first(self, addresses: Iterable[Address]) -> Address:
        """Return the one of these that comes first."""
        return min(addresses, key=self._order.index)

    def move_to_end(self, address: Address) -> None:
        """Let every other come before this one."""
        if address in self._order:
            self._order.remove(address)
            self._order.append(address)

    def adopt(self, live: Iterable[Address]) -> None:
        """Take in who is alive: newcomers come after the first, who is gone comes last."""
        alive = dict.fromkeys(live)
        listed = [each for each in self._order if each in alive]
        gone = [each for each in self._order if each not in alive]
        new = [each for each in alive if each not in listed]
        self._order = [*listed[:1], *random.sample(new, len(new)), *listed[1:], *gone]


def wrong_cluster(found: str, own: str | None) -> WrongClusterError:
    """Return the error for brokers of another cluster than the one that is served."""
    return WrongClusterError(
        f"The brokers are of the cluster {found!r}, and this service is for {own!r}; nothing was "
        "sent.",
        found=found,
    )


def no_live_broker() -> NotSentError:
    """Return the error for a cluster whose controller counts every broker as fenced."""
    return _unreachable("The cluster has no live broker.")


def not_live(broker_id: int) -> NotSentError:
    """Return the error for a broker that the others do not tell of."""
    return _unreachable(f"Broker {broker_id} is not among the live brokers of the cluster.")


def silent(who: str) -> NotSentError:
    """Return the error for whoever did not answer; ``who`` begins the sentence."""
    return _unreachable(f"{who} did not answer in time.")


def overcrowded(address: Address) -> NotSentError:
    """Return the error for a broker whose connections are all in use."""
    return _unreachable(f"Too many requests wait for the broker {address[0]}:{address[1]}.")


def shutting_down() -> NotSentError:
    """Return the error for whoever comes after the end."""
    return _unreachable("The service is shutting down.")


def _unreachable(detail: str) -> NotSentError:
    return NotSentError(detail, code=UNREACHABLE)
