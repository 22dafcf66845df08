"""Groups of users and client-ids that share one limit."""

from collections.abc import Mapping
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
from app.domain.callbacks.kafka_rules import (
    CLIENT_ID,
    USER,
    KafkaQuotaCallback,
    principal_name,
)
from app.domain.entities import ClientQuotaEntity
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import ConfiguredQuota, QuotaSource

GROUP: Final = "group"
_PREFIX: Final = "group:"
_USER_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class Groups:
    """The model of a callback with groups; who is in none is judged by Kafka's rules.

    The limit of a group is what is stored for the user entity ``group:<name>``. A user's group
    counts before a client-id's.

    Attributes:
        users: The group of each user that is in one.
        client_ids: Likewise of each client-id.
    """

    users: Mapping[str, str]
    client_ids: Mapping[str, str]
    name: str = "groups"
    is_pure: bool = True
    topics: frozenset[str] | None = frozenset()

    def of(self, user: str, client_id: str) -> str | None:
        """Return the group of a caller; null for none."""
        return self.users.get(user) or self.client_ids.get(client_id)

    def over(self, index: QuotaIndex, cluster: ClusterMetadata) -> ResolvingCallback:  # noqa: ARG002
        """Return it over these quotas."""
        return _GroupsCallback(index, self)

    def why_ineffective(self, entity: ClientQuotaEntity, key: str) -> str | None:
        """Say that all callers whom an entity names are in a group."""
        if key not in QUOTA_KEYS:
            return None
        names = entity.as_dict()
        group = self.of(names.get(USER) or "", names.get(CLIENT_ID) or "")
        if group is None:
            return None
        return f"{key} of {entity} limits nobody: its callers are in a group such as {group!r}."

    def close(self) -> None:
        """Hold nothing."""


class _GroupsCallback(KafkaQuotaCallback):
    def __init__(self, index: QuotaIndex, groups: Groups) -> None:
        super().__init__(index)
        self._groups = groups

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: str, client_id: str
    ) -> dict[str, str]:
        group = self._groups.of(principal_name(principal), client_id)
        if group is not None:
            return {GROUP: group}
        return super().quota_metric_tags(quota_type, principal, client_id)

    def decide(self, quota_type: QuotaType, metric_tags: MetricTags) -> Decision:
        group = metric_tags.get(GROUP)
        if group is None:
            return super().decide(quota_type, metric_tags)
        entity = ClientQuotaEntity.of({USER: f"{_PREFIX}{group}"})
        limit = self._index.values_of(entity).get(quota_type.key)
        if limit is None:
            return Decision(None)
        return Decision(limit, ConfiguredQuota(entity, _USER_LEVEL, QuotaSource.USER, limit))

    def why_ignored(self, user: str, client_id: str) -> str | None:
        group = self._groups.of(user, client_id)
        if group is None:
            return None
        who = USER if user in self._groups.users else CLIENT_ID
        return (
            f"The {who} is in the group {group!r}, which shares the limit that is stored for the "
            f"user {_PREFIX}{group}; no other stored quota counts."
        )
