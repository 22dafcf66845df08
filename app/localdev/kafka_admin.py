"""An admin client for a cluster that may not be up yet: it asks quietly."""

import logging

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_SILENT = logging.getLogger("app.localdev.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def silent_admin(bootstrap_servers: str) -> AdminClient:
    """Return a client that tries again fast and prints nothing where no broker listens."""
    configuration = {
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    return AdminClient(configuration, logger=_SILENT)


def cluster_id_of(client: AdminClient, timeout_s: float = 1.0) -> str | None:
    """Return the id of the cluster that answers with a live node, or nothing."""
    try:
        answer = client.describe_cluster(request_timeout=timeout_s).result()
    except KafkaException:
        return None
    return str(answer.cluster_id) if answer.nodes else None
