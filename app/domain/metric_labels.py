"""Which label of a metric says what: the one table of every reader.

Labels and headers are compared in lower case, without dots, dashes and underscores.

Source: the examples of the JMX exporter and of Telegraf's ``jolokia2_agent``, Strimzi's metrics
reporter, OpenTelemetry's semantic conventions, the labels that Prometheus adds to a target.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

CLUSTER: Final = "cluster"
BROKER: Final = "broker"
INSTANCE: Final = "instance"
METRIC: Final = "metric"
RESOURCE: Final = "resource"
USER: Final = "user"
CLIENT_ID: Final = "client_id"

_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    CLUSTER: ("clusterid", "kafkaclusterid", "cluster", "kafkacluster", "strimziiocluster"),
    BROKER: ("brokerid", "kafkabrokerid", "broker", "kafkabroker", "nodeid", "kafkanodeid"),
    INSTANCE: (
        *("instance", "exportedinstance", "serviceinstanceid", "pod", "podname"),
        *("kubernetespodname", "k8spodname", "statefulsetkubernetesiopodname"),
        *("jolokiaagenturl", "hostname", "host", "server"),
    ),
    METRIC: ("metric", "metricname", "name"),
    RESOURCE: ("resource", "quotatype", "kafkaquotatype", "type"),
    USER: ("user", "quotauser", "kafkauser", "username"),
    CLIENT_ID: (
        *("clientid", "quotaclientid", "kafkaclientid", "messagingclientid"),
        *("messagingkafkaclientid", "client", "quotaclient"),
    ),
}
"""What a label says: its spellings; of several that stand in one series the first wins."""


class Label(NamedTuple):
    """What a label says, and which of several wins: that of the lowest rank."""

    field: str
    rank: int


_LABELS: Final = {
    spelling: Label(field, rank)
    for field, spellings in _SPELLINGS.items()
    for rank, spelling in enumerate(spellings)
}
_SEPARATORS: Final = str.maketrans("", "", "-_.")


def plain_name(name: str) -> str:
    """Return a label or header in lower case, without blanks around and dots, - and _ within."""
    return name.strip().lower().translate(_SEPARATORS)


@lru_cache(maxsize=4096)
def label_of(name: str) -> Label | None:
    """Return what a label or header says; null where it is nothing of quotas."""
    return _LABELS.get(plain_name(name))


def labels_by_field(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the names that say something, by what they say, the one that wins first.

    Of several spellings of one rank the one that sorts first wins, so that their order says
    nothing.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if (label := label_of(name)) is not None:
            found.setdefault(label.field, []).append((label.rank, name))
    return {field: [name for _, name in sorted(ranked)] for field, ranked in found.items()}
