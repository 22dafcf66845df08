"""``--cluster NAME``: a cluster of the file that the service reads, and its id in Kafka."""

import argparse
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from app.documents.clusters import ClusterEntry, ClustersFileError, read_clusters_file
from app.pipeline.errors import InfrastructureError, UsageError

CLUSTERS_FILE: Final = "QUOTAS_CLUSTERS_FILE"

_ATTEMPT_S: Final = 5.0
_ATTEMPTS: Final = 6

_SILENT: Final = logging.getLogger("app.pipeline.silent")
_SILENT.disabled = True


def add_clusters_option(parser: argparse.ArgumentParser) -> None:
    """Add the file in which ``--cluster`` is a name."""
    parser.add_argument(
        "--clusters-file",
        metavar="FILE",
        help=f"the service's file of several clusters (default: {CLUSTERS_FILE}); --cluster is "
        "then a name in it",
    )


def cluster_named(
    options: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> tuple[str, ClusterEntry] | None:
    """Return the cluster that ``--cluster`` names; null where there is no file, or no name.

    Raises:
        UsageError: The file cannot be used, or has no such cluster.
    """
    file = options.clusters_file or environ.get(CLUSTERS_FILE)
    if file is None or options.cluster is None:
        return None
    try:
        clusters = read_clusters_file(Path(file)).clusters
    except ClustersFileError as error:
        raise UsageError(str(error)) from error
    if options.cluster not in clusters:
        names = ", ".join(clusters)
        message = f"--cluster: {file} has no cluster {options.cluster}; it has {names}."
        raise UsageError(message)
    return options.cluster, clusters[options.cluster]


def cluster_id_of(options: argparse.Namespace) -> str | None:
    """Return Kafka's id of the cluster that is asked for; null where none is.

    Its brokers are asked where the file does not say it. Without a file ``--cluster`` is the id,
    and of a dry run the name stays.

    Raises:
        UsageError: As ``cluster_named``.
        InfrastructureError: No broker of it answers.
    """
    found = cluster_named(options)
    if found is None or options.dry_run:
        cluster_id: str | None = options.cluster
        return cluster_id
    name, entry = found
    return entry.cluster_id or _asked(name, entry)


def _asked(name: str, entry: ClusterEntry) -> str:
    reason: object = None
    for _ in range(_ATTEMPTS):  # a busy broker answers the next time
        try:
            client = AdminClient(_settings(entry), logger=_SILENT)
            return str(client.describe_cluster(request_timeout=_ATTEMPT_S).result().cluster_id)
        except KafkaException as error:
            reason = error
    message = f"No broker of the cluster {name} answers ({reason})."
    raise InfrastructureError(message)


def _settings(entry: ClusterEntry) -> dict[str, str]:
    """Return a cluster as librdkafka takes it."""
    settings = {
        "bootstrap.servers": entry.bootstrap_servers,
        "security.protocol": entry.security_protocol,
        "sasl.mechanism": entry.sasl_mechanism,
        "sasl.username": entry.sasl_username,
        "sasl.password": entry.sasl_password,
        "ssl.ca.location": entry.ssl_ca_file,
        "ssl.certificate.location": entry.ssl_cert_file,
        "ssl.key.location": entry.ssl_key_file or entry.ssl_cert_file,
        "ssl.key.password": entry.ssl_key_password,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}
