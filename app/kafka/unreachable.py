"""Why no broker is asked; nothing was sent in any of these cases."""

from app.domain.errors import NotSentError, WrongClusterError
from app.kafka.connection import UNREACHABLE
from app.kafka.handshake import Address


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
