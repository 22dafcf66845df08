"""What one broker says of its cluster."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from app.domain.errors import NotSentError, UnsupportedVersionError
from app.kafka.connection import UNREACHABLE, AnswerLostError, BrokerConnection
from app.kafka.handshake import Address
from app.kafka.questions import ask, newest_common


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
