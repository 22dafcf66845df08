"""Strimzi's ``StaticQuotaCallback``: one limit for all, whatever is stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.callbacks.callback import (
    QUOTA_KEYS,
    ClusterMetadata,
    Decision,
    MetricTags,
    QuotaType,
    ResolvingCallback,
)
from app.domain.callbacks.kafka_rules import IndexedCallback, principal_name
from app.domain.entities import ClientQuotaEntity
from app.domain.resolution_index import QuotaIndex

STRIMZI_STATIC: Final = "io.strimzi.kafka.quotas.StaticQuotaCallback"

_TYPE: Final = "quota.type"
_EXCLUDED: Final = "excluded-principal-quota-key"

_IGNORED: Final = "The brokers' callback ignores every stored quota of users and client-ids"
_STORAGE: Final = (
    "producer_byte_rate: the plugin lowers this limit where a volume runs full (storage "
    "throttling); that does not show here."
)


@dataclass(frozen=True, slots=True)
class StrimziStatic:
    """The model of Strimzi's plugin.

    Attributes:
        limits: Of each type for everybody together; a type without one is unlimited.
        excluded: The names of the users who are not limited.

    Source: ``StaticQuotaCallback`` of ``io.strimzi:kafka-quotas-plugin`` 0.3.1.
    """

    limits: Mapping[QuotaType, float]
    excluded: frozenset[str]
    name: str = "strimzi-static"
    is_pure: bool = True
    topics: frozenset[str] | None = frozenset()

    def over(self, index: QuotaIndex, cluster: ClusterMetadata) -> ResolvingCallback:  # noqa: ARG002
        """Return it; the quotas are only listed as what is ignored."""
        return _StaticCallback(index, self)

    def why_ineffective(self, entity: ClientQuotaEntity, key: str) -> str | None:
        """Say that a key of users or client-ids counts for nobody."""
        return f"{_IGNORED}: {key} of {entity} limits nobody." if key in QUOTA_KEYS else None

    def close(self) -> None:
        """Hold nothing."""


class _StaticCallback(IndexedCallback):
    def __init__(self, index: QuotaIndex, model: StrimziStatic) -> None:
        super().__init__(index)
        self._model = model

    def quota_metric_tags(
        self,
        quota_type: QuotaType,
        principal: str,
        client_id: str,  # noqa: ARG002 - KIP-257
    ) -> dict[str, str]:
        tags = {_TYPE: quota_type.value}
        if principal_name(principal) in self._model.excluded:
            tags[_EXCLUDED] = "true"
        return tags

    def quota_limit(self, quota_type: QuotaType, metric_tags: MetricTags) -> float | None:
        return self.decide(quota_type, metric_tags).limit

    def decide(self, quota_type: QuotaType, metric_tags: MetricTags) -> Decision:
        excluded = metric_tags.get(_EXCLUDED) == "true"
        return Decision(None if excluded else self._model.limits.get(quota_type))

    def why_ignored(self, user: str, client_id: str) -> str | None:  # noqa: ARG002 - for all alike
        return f"{_IGNORED}."

    def notes(self, quota_type: QuotaType, decision: Decision) -> Iterable[str]:
        limited = quota_type is QuotaType.PRODUCE and decision.limit is not None
        return (_STORAGE,) if limited else ()
