"""A connection on loan for one request, and to which broker of which cluster it leads."""

from dataclasses import dataclass

from app.kafka.connection import BrokerConnection
from app.kafka.handshake import Address
from app.kafka.pool import Lease


@dataclass(frozen=True, slots=True)
class BrokerLease:
    """A connection to a broker of known id."""

    cluster_id: str
    broker_id: int
    address: Address
    lease: Lease

    @property
    def connection(self) -> BrokerConnection:
        """The connection."""
        return self.lease.connection

    def release(self) -> None:
        """Give the connection back."""
        self.lease.release()
