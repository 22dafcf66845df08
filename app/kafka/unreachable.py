"""Why no broker is asked; nothing was sent in any of these cases."""

from typing import Final

from app.domain.errors import NotSentError
from app.kafka.cluster_view import ClusterView
from app.kafka.connection import UNREACHABLE
from app.kafka.handshake import Address

WRONG_CLUSTER: Final = "wrong-cluster"
"""The code of what is refused because another cluster answers than the one that is named."""


def refuse_other_cluster(view: ClusterView, cluster_id: str | None) -> None:
    """Make sure that the brokers are of the cluster that is named; null names none.

    Raises:
        NotSentError: They are of another.
    """
    if cluster_id is not None and view.cluster_id != cluster_id:
        detail = (
            f"The brokers are of the cluster {view.cluster_id!r}, and this service is for "
            f"{cluster_id!r}; nothing was sent."
        )
        raise NotSentError(detail, code=WRONG_CLUSTER)


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
