"""Limits in proportion to the leaders of a client's topics that a broker has."""

from collections import Counter
from collections.abc import Mapping

from app.domain.callbacks.callback import (
    ClusterMetadata,
    Decision,
    MetricTags,
    QuotaType,
    ResolvingCallback,
)
from app.domain.callbacks.kafka_rules import CLIENT_ID, USER, KafkaQuotaCallback
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QUOTA_KEY_RULES, Scope
from app.domain.resolution_index import QuotaIndex


class PartitionShare:
    """The model of a callback that spreads a limit over the brokers.

    A stored quota is what all brokers together allow. Each allows the share that it has of the
    leaders of the client's topics; a client whose topics are not listed is judged by Kafka's rules.

    Args:
        users: The topics of each user that is listed.
        client_ids: Likewise of each client-id; a user's topics count before a client-id's.
    """

    name = "partition-share"
    is_pure = True

    def __init__(
        self, users: Mapping[str, frozenset[str]], client_ids: Mapping[str, frozenset[str]]
    ) -> None:
        self._users, self._client_ids = users, client_ids
        self.topics: frozenset[str] | None = frozenset().union(
            *users.values(), *client_ids.values()
        )

    def of(self, tags: MetricTags) -> frozenset[str] | None:
        """Return the topics of those who share a limit; null where they are not listed."""
        return self._users.get(tags[USER]) or self._client_ids.get(tags[CLIENT_ID])

    def over(self, index: QuotaIndex, cluster: ClusterMetadata) -> ResolvingCallback:
        """Return it over these quotas, with these leaders."""
        return _PartitionShareCallback(index, self, cluster)

    def why_ineffective(self, entity: ClientQuotaEntity, key: str) -> str | None:  # noqa: ARG002
        """Say that each stored value counts."""
        return None

    def close(self) -> None:
        """Hold nothing."""


class _PartitionShareCallback(KafkaQuotaCallback):
    def __init__(self, index: QuotaIndex, model: PartitionShare, cluster: ClusterMetadata) -> None:
        super().__init__(index)
        self._model, self._cluster = model, cluster

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:
        self._cluster = cluster
        return True

    def decide(self, quota_type: QuotaType, metric_tags: MetricTags) -> Decision:
        decision = super().decide(quota_type, metric_tags)
        topics = self._model.of(metric_tags)
        per_broker = QUOTA_KEY_RULES[quota_type.key].scope is Scope.PER_BROKER
        if decision.limit is None or topics is None or not per_broker:
            return decision
        return decision._replace(by_broker=self._shares(decision.limit, topics))

    def _shares(self, limit: float, topics: frozenset[str]) -> Mapping[int, float] | None:
        leaders = Counter(
            leader
            for topic in topics
            for leader in self._cluster.leaders.get(topic, ())
            if leader is not None
        )
        number = leaders.total()
        if not number:
            return None
        brokers = sorted({*self._cluster.brokers, *leaders})
        return {broker: limit * leaders[broker] / number for broker in brokers}
