"""The interface of KIP-257 in Python, and what this service asks of a callback beyond it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, Self

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity, EntityWarning
from app.domain.quota_keys import QuotaKey
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import ConfiguredQuota

MetricTags = Mapping[str, str]
"""Who shares a limit: all callers with the same tags."""


class QuotaType(StrEnum):
    """What a callback is asked about, and the quota key of it. Source: ``ClientQuotaType``."""

    key: QuotaKey

    def __new__(cls, name: str, key: QuotaKey) -> Self:
        """Attach the key: a look-up of it for each limit of each caller would cost more."""
        member = str.__new__(cls, name)
        member._value_, member.key = name, key
        return member

    PRODUCE = "PRODUCE", QuotaKey.PRODUCER_BYTE_RATE
    FETCH = "FETCH", QuotaKey.CONSUMER_BYTE_RATE
    REQUEST = "REQUEST", QuotaKey.REQUEST_PERCENTAGE
    CONTROLLER_MUTATION = "CONTROLLER_MUTATION", QuotaKey.CONTROLLER_MUTATION_RATE


QUOTA_TYPES: Final = tuple(QuotaType)

QUOTA_KEYS: Final = frozenset(quota_type.key.value for quota_type in QUOTA_TYPES)
"""Those that a callback decides about; limits of addresses pass none."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """What a callback is told of the cluster.

    Attributes:
        brokers: The ids of the live brokers.
        leaders: By topic, the broker that leads each partition; null where none does.
    """

    brokers: tuple[int, ...] = ()
    leaders: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)


NO_METADATA: Final = ClusterMetadata()


class QuotaCallback(Protocol):
    """Decides about quotas as ``ClientQuotaCallback`` does in a broker. Source: KIP-257."""

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: str, client_id: str
    ) -> MetricTags:
        """Return who shares the limit of a caller such as ``User:alice``."""

    def quota_limit(self, quota_type: QuotaType, metric_tags: MetricTags) -> float | None:
        """Return the limit of what ``quota_metric_tags`` returned; null is unlimited."""

    def update_quota(
        self, quota_type: QuotaType, entity: ClientQuotaEntity, new_value: float
    ) -> None:
        """Take in a stored value of an entity."""

    def remove_quota(self, quota_type: QuotaType, entity: ClientQuotaEntity) -> None:
        """Take in that an entity has no value any more."""

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        """Tell whether limits have changed for another reason than a stored value."""

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:
        """Take in the cluster's brokers and leaders; tell whether limits have changed."""

    def close(self) -> None:
        """Let go of what is held."""


class Decision(NamedTuple):
    """How high a limit is, and why.

    Attributes:
        limit: In the key's unit; null is unlimited.
        source: The stored quota that decides; null where none does.
        by_broker: The limit on each broker, where they differ.
    """

    limit: float | None
    source: ConfiguredQuota | None = None
    by_broker: Mapping[int, float] | None = None


class ResolvingCallback(QuotaCallback, Protocol):
    """A callback over the quotas of one index that can also say why it decides so."""

    def decide(self, quota_type: QuotaType, metric_tags: MetricTags) -> Decision:
        """Return the limit of these tags, and where it comes from."""

    def stored(self, user: str, client_id: str) -> Mapping[str, list[ConfiguredQuota]]:
        """Return what is stored for these names, as ``QuotaIndex.client_values``."""

    def why_ignored(self, user: str, client_id: str) -> str | None:
        """Say why Kafka's rules do not decide for a caller; null where they do."""

    def notes(self, quota_type: QuotaType, decision: Decision) -> Iterable[str]:
        """Say what else decides about a limit, which this service cannot see."""


class CallbackModel(Protocol):
    """How a broker's callback is taken over here."""

    @property
    def name(self) -> str:
        """As configured."""

    @property
    def is_pure(self) -> bool:
        """Whether stored quotas and metadata alone decide, so that answers can be cached."""

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics whose leaders it asks for; null is all of them."""

    def over(self, index: QuotaIndex, cluster: ClusterMetadata) -> ResolvingCallback:
        """Return the callback as it decides with these quotas."""

    def why_ineffective(self, entity: ClientQuotaEntity, key: str) -> str | None:
        """Say why a stored value of an entity limits nobody; null where it may."""

    def close(self) -> None:
        """Let go of what is held, when the service ends."""


IGNORED: Final = "ignored-by-callback"
"""The code of the warning about a key that limits nobody."""


def ignored_by(
    model: CallbackModel, alterations: Iterable[ClientQuotaAlteration]
) -> list[EntityWarning]:
    """Return a warning for each key of an alteration that a callback ignores."""
    return [
        EntityWarning(alteration.entity, IGNORED, why)
        for alteration in alterations
        for op in alteration.ops
        if (why := model.why_ineffective(alteration.entity, op.key)) is not None
    ]


class ConfiguredCallback(NamedTuple):
    """What ``QUOTAS_CALLBACK_FILE`` says.

    Attributes:
        class_name: What brokers report as ``client.quota.callback.class``.
        model: What it does.
    """

    class_name: str
    model: CallbackModel
