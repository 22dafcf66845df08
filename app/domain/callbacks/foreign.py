"""A class of the user's own as a callback: ``package.module:Class``."""

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.domain.alterations import Quotas
from app.domain.callbacks.callback import (
    QUOTA_TYPES,
    ClusterMetadata,
    Decision,
    MetricTags,
    QuotaType,
    ResolvingCallback,
)
from app.domain.callbacks.kafka_rules import IndexedCallback
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import CallbackFailedError
from app.domain.resolution_index import QuotaIndex

logger = logging.getLogger(__name__)

_NO_QUOTAS: Final = QuotaIndex.of({})

METHODS: Final = (
    "quota_metric_tags",
    "quota_limit",
    "update_quota",
    "remove_quota",
    "quota_reset_required",
    "update_cluster_metadata",
    "close",
)
"""What a class needs. Source: KIP-257."""


class ForeignCallback:
    """The model of a class that is not this service's.

    There is one object, which is told what is stored as a broker tells its callback: all of it
    first, then what differs. One thread at a time calls it.

    Args:
        name: ``package.module:Class``.
        callback: The object.
    """

    is_pure = False
    topics: frozenset[str] | None = None

    def __init__(self, name: str, callback: Any) -> None:
        self.name = name
        self._callback = callback
        self._lock = threading.RLock()
        self._index = _NO_QUOTAS
        self._cluster: ClusterMetadata | None = None

    def over(self, index: QuotaIndex, cluster: ClusterMetadata) -> ResolvingCallback:
        """Tell it these quotas, and return it as it decides with them.

        Raises:
            CallbackFailedError: It raised an error.
        """
        with self._lock:
            self.tell(index, cluster)
        return _View(index, cluster, self)

    def why_ineffective(self, entity: ClientQuotaEntity, key: str) -> str | None:  # noqa: ARG002
        """Say nothing: what it ignores is not known."""
        return None

    def close(self) -> None:
        """Let it go of what it holds."""
        self.call("close")

    def ask(
        self, index: QuotaIndex, cluster: ClusterMetadata, method: str, *arguments: object
    ) -> Any:
        """Ask it as of these quotas.

        Raises:
            CallbackFailedError: It raised an error.
        """
        with self._lock:
            self.tell(index, cluster)
            return self.call(method, *arguments)

    def tell(self, index: QuotaIndex, cluster: ClusterMetadata) -> None:
        """Tell it what differs from what it was told before; again from the start after an error.

        Raises:
            CallbackFailedError: It raised an error.
        """
        if cluster is not self._cluster:
            self.call("update_cluster_metadata", cluster)
            self._cluster = cluster
        if index is not self._index:
            for entity, before, after in _differences(self._index.quotas, index.quotas):
                self._tell_entity(entity.as_dict(), before, after)
            self._index = index

    def _tell_entity(
        self,
        names: Mapping[str, str | None],
        before: Mapping[str, float],
        after: Mapping[str, float],
    ) -> None:
        if "ip" in names:
            return
        for quota_type in QUOTA_TYPES:
            value = after.get(quota_type.key)
            if value is not None:
                if before.get(quota_type.key) != value:
                    self.call("update_quota", quota_type.value, dict(names), value)
            elif quota_type.key in before:
                self.call("remove_quota", quota_type.value, dict(names))

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method.

        Raises:
            CallbackFailedError: It raised an error.
        """
        try:
            return getattr(self._callback, method)(*arguments)
        except Exception as error:  # whatever it is: the code is not ours
            logger.exception("the quota callback %s failed", self.name)
            raise self.failed(method, f"raised {type(error).__name__}: {error}") from error

    def failed(self, method: str, what: str) -> CallbackFailedError:
        """Return the error that names the class."""
        return CallbackFailedError(f"The quota callback {self.name} failed: {method} {what}.")


def _differences(
    before: Quotas, after: Quotas
) -> "list[tuple[ClientQuotaEntity, Mapping[str, float], Mapping[str, float]]]":
    return [
        (entity, before.get(entity) or {}, after.get(entity) or {})
        for entity in {**before, **after}
        if before.get(entity) is not after.get(entity)
    ]


class _View(IndexedCallback):
    def __init__(
        self, index: QuotaIndex, cluster: ClusterMetadata, foreign: ForeignCallback
    ) -> None:
        super().__init__(index)
        self._cluster, self._foreign = cluster, foreign

    def quota_metric_tags(
        self, quota_type: QuotaType, principal: str, client_id: str
    ) -> MetricTags:
        method = "quota_metric_tags"
        tags = self._ask(method, quota_type.value, principal, client_id)
        if not isinstance(tags, Mapping) or not all(
            isinstance(text, str) for pair in tags.items() for text in pair
        ):
            raise self._foreign.failed(method, "returned no mapping from text to text")
        return dict(tags)

    def quota_limit(self, quota_type: QuotaType, metric_tags: MetricTags) -> float | None:
        method = "quota_limit"
        limit = self._ask(method, quota_type.value, dict(metric_tags))
        if limit is None:
            return None
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            raise self._foreign.failed(method, "returned neither a number nor None")
        return float(limit)

    def decide(self, quota_type: QuotaType, metric_tags: MetricTags) -> Decision:
        return Decision(self.quota_limit(quota_type, metric_tags))

    def why_ignored(self, user: str, client_id: str) -> str | None:  # noqa: ARG002 - for all alike
        return f"{self._foreign.name} decides; which stored quotas it considers is not known."

    def _ask(self, method: str, *arguments: object) -> Any:
        return self._foreign.ask(self._index, self._cluster, method, *arguments)


def make_foreign(
    name: str, factory: Callable[..., Any], options: Mapping[str, Any]
) -> ForeignCallback:
    """Make an object of a class, with its options as keyword arguments.

    Raises:
        ValueError: It cannot be made, or lacks a method; the text says why.
    """
    try:
        callback = factory(**options)
    except Exception as error:  # whatever it is: the code is not ours
        message = f"{name} was not made: {type(error).__name__}: {error}"
        raise ValueError(message) from error
    missing = [method for method in METHODS if not callable(getattr(callback, method, None))]
    if missing:
        message = f"{name} lacks {', '.join(missing)}"
        raise ValueError(message)
    return ForeignCallback(name, callback)
