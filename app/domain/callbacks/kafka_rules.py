"""Kafka's own rules as a callback: what brokers without ``client.quota.callback.class`` do."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from app.domain.alterations import Values
from app.domain.callbacks.callback import (
    ClusterMetadata,
    Decision,
    MetricTags,
    QuotaType,
    ResolvingCallback,
)
from app.domain.entities import ClientQuotaEntity, EntityType
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import PRECEDENCE, Bucket, ConfiguredQuota

USER: Final = EntityType.USER.value
CLIENT_ID: Final = EntityType.CLIENT_ID.value

NOTHING: Final[Sequence[ConfiguredQuota]] = ()


def principal_name(principal: str) -> str:
    """Return the name in ``User:alice``; enforcement ignores the type. Source: ``Session``."""
    return principal.partition(":")[2]


_LookUp = tuple[str, str, Mapping[str, list[ConfiguredQuota]]]

_NOT_LOOKED_UP: Final[_LookUp] = ("\x00", "\x00", {})
"""No caller has these names: Kafka's come from text without U+0000."""


class IndexedCallback:
    """What callbacks have in common that read stored quotas from an index.

    Threads may share one: it only remembers what it looked up last.
    """

    def __init__(self, index: QuotaIndex) -> None:
        self._index = index
        self._last = _NOT_LOOKED_UP

    def update_quota(
        self, quota_type: QuotaType, entity: ClientQuotaEntity, new_value: float
    ) -> None:
        """Take in a stored value."""
        values = {**self._index.values_of(entity), quota_type.key.value: new_value}
        self._replace(entity, values)

    def remove_quota(self, quota_type: QuotaType, entity: ClientQuotaEntity) -> None:
        """Take in that a value is gone."""
        gone = quota_type.key
        values = self._index.values_of(entity).items()
        self._replace(entity, {key: value for key, value in values if key != gone})

    def quota_reset_required(self, quota_type: QuotaType) -> bool:  # noqa: ARG002 - KIP-257
        """Tell that nothing but stored values counts."""
        return False

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:  # noqa: ARG002 - KIP-257
        """Ignore the cluster."""
        return False

    def close(self) -> None:
        """Hold nothing."""

    def stored(self, user: str, client_id: str) -> Mapping[str, list[ConfiguredQuota]]:
        """Return what is stored for these names; the last answer is kept for the next key."""
        last = self._last
        if last[0] != user or last[1] != client_id:
            last = self._last = (user, client_id, self._index.client_values(user, client_id))
        return last[2]

    def why_ignored(self, user: str, client_id: str) -> str | None:  # noqa: ARG002 - by subclasses
        """Say that Kafka's rules decide."""
        return None

    def notes(
        self,
        quota_type: QuotaType,  # noqa: ARG002 - by subclasses
        decision: Decision,  # noqa: ARG002
    ) -> Iterable[str]:
        """Say nothing: all that decides is stored."""
        return ()

    def _replace(self, entity: ClientQuotaEntity, values: Values) -> None:
        self._index, self._last = self._index.with_values({entity: values}), _NOT_LOOKED_UP


_LEVELS_OF_TAGS: Final[Mapping[tuple[bool, bool], frozenset[int]]] = {
    named: frozenset(row.level for row in PRECEDENCE if row.bucket is bucket)
    for named, bucket in (
        ((True, True), Bucket.USER_CLIENT_ID),
        ((True, False), Bucket.USER),
        ((False, True), Bucket.CLIENT_ID),
    )
} | {(False, False): frozenset()}
"""By whether the tags name a user and a client-id, the levels at which their limit is looked up."""


class KafkaQuotaCallback(IndexedCallback):
    """Finds the bucket of a caller by the first level with a value, and the limit of a bucket.

    These are two steps, as in a broker: the first with the caller's names, which chooses the tags;
    the second with the tags alone. Where a name is empty they may differ, and then nothing limits.

    Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1.
    """

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: str, client_id: str
    ) -> dict[str, str]:
        """Return the user and the client-id of the bucket; either may be empty.

        A single kind of rules decides alone, several try the levels; no rule, or rules for other
        names only, leaves the client-id. Source: ``quotaMetricTags``.
        """
        user = principal_name(principal)
        key = quota_type.key
        having = self.stored(user, client_id).get(key)
        if having:
            bucket = PRECEDENCE[having[0].level - 1].bucket
        else:
            bucket = self._index.lone_kind(key) or Bucket.CLIENT_ID
        return {
            USER: "" if bucket is Bucket.CLIENT_ID else user,
            CLIENT_ID: "" if bucket is Bucket.USER else client_id,
        }

    def quota_limit(self, quota_type: QuotaType, metric_tags: MetricTags) -> float | None:
        """Return the limit of a bucket."""
        return self.decide(quota_type, metric_tags).limit

    def decide(self, quota_type: QuotaType, metric_tags: MetricTags) -> Decision:
        """Return the limit of a bucket, and the stored quota that it comes from."""
        levels = _LEVELS_OF_TAGS[bool(metric_tags[USER]), bool(metric_tags[CLIENT_ID])]
        for quota in self._of_tags(metric_tags).get(quota_type.key, NOTHING):
            if quota.level in levels:
                return Decision(quota.value, quota)
        return _UNLIMITED

    def _of_tags(self, tags: MetricTags) -> Mapping[str, list[ConfiguredQuota]]:
        """Return what is stored for the names of tags: mostly those that were looked up last."""
        user, client_id, stored = self._last
        if tags[USER] in (user, "") and tags[CLIENT_ID] in (client_id, ""):
            return stored
        return self.stored(tags[USER], tags[CLIENT_ID])


_UNLIMITED: Final = Decision(None)


class KafkaRules:
    """The model of brokers without a callback of their own, and of classes that do the same."""

    name = "kafka"
    is_pure = True
    topics: frozenset[str] | None = frozenset()

    def over(self, index: QuotaIndex, cluster: ClusterMetadata) -> ResolvingCallback:  # noqa: ARG002
        """Return Kafka's rules over these quotas."""
        return KafkaQuotaCallback(index)

    def why_ineffective(self, entity: ClientQuotaEntity, key: str) -> str | None:  # noqa: ARG002
        """Say that each stored value counts."""
        return None

    def close(self) -> None:
        """Hold nothing."""


KAFKA_RULES: Final = KafkaRules()
