"""Which quota callback decides: the configured one where every live broker reports its class."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.callbacks.callback import (
    NO_METADATA,
    CallbackModel,
    ClusterMetadata,
    ConfiguredCallback,
    ResolvingCallback,
)
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.resolution_index import QuotaIndex
from app.service.ports.brokers import CallbackReports, DescribeCallbacks, DescribeLeaders


@dataclass(frozen=True, eq=False, slots=True)
class CallbackInUse:
    """What answers rest on; the same object as long as nothing has changed.

    Attributes:
        class_name: The class that a broker reports; null where none does.
        model: What decides here.
        is_authoritative: Whether brokers decide likewise.
        notes: Sentences for people.
        cluster: What the model is told of the cluster.
    """

    class_name: str | None = None
    model: CallbackModel = KAFKA_RULES
    is_authoritative: bool = True
    notes: tuple[str, ...] = ()
    cluster: ClusterMetadata = NO_METADATA

    @property
    def is_kafkas(self) -> bool:
        """Whether Kafka's own rules decide."""
        return self.model is KAFKA_RULES

    def over(self, index: QuotaIndex) -> ResolvingCallback:
        """Return the callback as it decides with these quotas.

        Raises:
            CallbackFailedError: A callback that is not this service's raised an error.
        """
        return self.model.over(index, self.cluster)


NO_CALLBACK: Final = CallbackInUse()
"""No broker has one."""

CallbackNow = Callable[[], Awaitable[CallbackInUse]]
"""Returns what decides now."""


class QuotaCallbacks:
    """Follows what brokers report, and what the model wants to know of the cluster.

    Args:
        describe: Asks the brokers; it caches.
        configured: What is configured; null: nothing.
        leaders: Asks for the leaders of topics; it caches.
    """

    def __init__(
        self,
        describe: DescribeCallbacks,
        configured: ConfiguredCallback | None,
        leaders: DescribeLeaders,
    ) -> None:
        self._describe, self._configured, self._leaders = describe, configured, leaders
        self._reports: CallbackReports | None = None
        self._in_use = NO_CALLBACK

    async def now(self) -> CallbackInUse:
        """Return what decides now.

        Raises:
            NotSentError: The leaders that the model needs cannot be had.
        """
        reports = await self._describe()
        if reports != self._reports:
            self._in_use, self._reports = _in_use(reports, self._configured), reports
        topics = self._in_use.model.topics
        if topics is None or topics:
            cluster = await self._leaders(topics)
            if cluster != self._in_use.cluster:
                self._in_use = _with_cluster(self._in_use, cluster)
        return self._in_use

    async def model(self) -> CallbackModel:
        """Return by what brokers decide; without a configured callback nobody is asked.

        Raises:
            NotSentError: As ``now``.
        """
        return KAFKA_RULES if self._configured is None else (await self.now()).model

    async def close(self) -> None:
        """Let the model go of what it holds."""
        if self._configured is not None:
            self._configured.model.close()


def _with_cluster(in_use: CallbackInUse, cluster: ClusterMetadata) -> CallbackInUse:
    return CallbackInUse(
        in_use.class_name, in_use.model, in_use.is_authoritative, in_use.notes, cluster
    )


def _in_use(reports: CallbackReports, configured: ConfiguredCallback | None) -> CallbackInUse:
    custom = reports.custom
    if configured is None:
        if custom is None:
            return NO_CALLBACK
        return CallbackInUse(custom, is_authoritative=False, notes=(_not_enforced(custom),))
    others = _others(reports, configured.class_name)
    if not others and reports.classes:
        return CallbackInUse(configured.class_name, configured.model)
    if custom is None and not reports.silent and reports.classes:
        note = (
            f"No broker has the configured callback {configured.class_name}: Kafka's rules decide."
        )
        return CallbackInUse(notes=(note,))
    listed = ", ".join(f"broker {broker} {what}" for broker, what in sorted(others.items()))
    listed = listed or "none is live"
    notes = [f"Not every broker has the configured callback {configured.class_name}: {listed}."]
    notes += [_not_enforced(custom)] if custom is not None else []
    return CallbackInUse(custom, is_authoritative=False, notes=tuple(notes))


def _others(reports: CallbackReports, class_name: str) -> Mapping[int, str]:
    """Say of each broker that does not report the class what it reports."""
    others = {
        broker: "has none" if found is None else f"has {found}"
        for broker, found in reports.classes.items()
        if found != class_name
    }
    return {**others, **dict.fromkeys(reports.silent, "has not reported")}


def _not_enforced(class_name: str) -> str:
    return (
        f"A broker has client.quota.callback.class={class_name}: this is what is configured, not "
        "necessarily what is enforced."
    )
