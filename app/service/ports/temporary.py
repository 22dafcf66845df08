"""What the use cases need of the values that end by themselves."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.expiry import TemporaryValue


class Pending(NamedTuple):
    """The temporary values of a cluster.

    Attributes:
        number: How many there are.
        late_s: How long ago the first of them was due, in seconds; 0 where none is.
        fingerprint: Another one where they are others.
    """

    number: int
    late_s: float
    fingerprint: int


class TemporaryJournal(Protocol):
    """The temporary values that the log leads to; every method may raise ``NotSentError``."""

    async def claim_due(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[TemporaryValue]:
        """Claim what is due by the database's clock, and return it, whole alterations.

        What another owner has claimed a short while ago is left out. Nothing rests on it but
        economy: an intent checks under its locks that what it ends is due.
        """

    async def pending(self, cluster_id: str) -> Pending:
        """Return how many there are, and how late the first of them is."""

    async def values(
        self, cluster_id: str, entities: Iterable[ClientQuotaEntity] | None = None
    ) -> Sequence[TemporaryValue]:
        """Return all of the cluster, or those of these entities."""

    async def change_expiry(
        self, cluster_id: str, alteration_id: str, expires_at: datetime | None, change: "Asked"
    ) -> Sequence[TemporaryValue]:
        """Let what an alteration has set end at another time; null: never. It is in the log.

        Returns:
            The values with their new time; where that is null, as they were.

        Raises:
            NotFoundError: Nothing of the alteration is pending.
            EntityBusyError: An alteration of one of the entities is in flight, such as its end.
        """


class Asked(NamedTuple):
    """Who asks for another time, by which request."""

    caller: Caller
    request_id: str
