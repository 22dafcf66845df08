"""The configured callback decides where every live broker reports its class."""

import pytest

from app.domain.callbacks.callback import NO_METADATA, ClusterMetadata, ConfiguredCallback
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.callbacks.partition_share import PartitionShare
from app.domain.callbacks.strimzi_static import STRIMZI_STATIC, StrimziStatic
from app.service.ports.brokers import CallbackReports
from app.service.queries.callbacks import NO_CALLBACK, CallbackInUse, QuotaCallbacks

STATIC = ConfiguredCallback(STRIMZI_STATIC, StrimziStatic({}, frozenset()))
OTHER = "com.example.Quotas"
CONFIGURED = "not necessarily what is enforced"


class Cluster:
    def __init__(self, reports: CallbackReports) -> None:
        self.reports = reports
        self.cluster = NO_METADATA
        self.asked: list[frozenset[str] | None] = []

    async def describe(self) -> CallbackReports:
        return self.reports

    async def leaders(self, topics: frozenset[str] | None) -> ClusterMetadata:
        self.asked.append(topics)
        return self.cluster


async def in_use(
    reports: CallbackReports, configured: ConfiguredCallback | None = STATIC
) -> CallbackInUse:
    cluster = Cluster(reports)
    return await QuotaCallbacks(cluster.describe, configured, cluster.leaders).now()


def reported(*classes: str | None, silent: int = 0) -> CallbackReports:
    return CallbackReports(
        dict(enumerate(classes, 1)), frozenset(range(len(classes) + 1, len(classes) + 1 + silent))
    )


async def test_without_a_callback_kafka_s_rules_decide():
    for reports in (reported(None, None), reported(), reported(silent=2)):
        assert await in_use(reports, None) is NO_CALLBACK


async def test_a_callback_that_is_not_configured_is_not_taken_for_kafka_s_rules():
    found = await in_use(reported(None, OTHER), None)
    assert (found.class_name, found.model, found.is_authoritative) == (OTHER, KAFKA_RULES, False)
    (note,) = found.notes
    assert CONFIGURED in note


async def test_the_configured_callback_decides_where_every_live_broker_has_it():
    found = await in_use(reported(STRIMZI_STATIC, STRIMZI_STATIC))
    assert found.class_name == STRIMZI_STATIC
    assert found.model is STATIC.model
    assert found.is_authoritative
    assert found.notes == ()


@pytest.mark.parametrize(
    ("reports", "what"),
    [
        (reported(STRIMZI_STATIC, None), "broker 2 has none."),
        (reported(OTHER, STRIMZI_STATIC), f"broker 1 has {OTHER}."),
        (reported(STRIMZI_STATIC, silent=1), "broker 2 has not reported."),
        (reported(silent=2), "broker 1 has not reported, broker 2 has not reported."),
    ],
)
async def test_a_note_says_which_broker_differs(reports: CallbackReports, what: str):
    found = await in_use(reports)
    assert (found.model, found.is_authoritative) == (KAFKA_RULES, False)
    assert found.notes[0].endswith(what)
    assert any(CONFIGURED in note for note in found.notes) == (reports.custom is not None)


async def test_where_no_broker_has_the_configured_callback_kafka_s_rules_are_enforced():
    found = await in_use(reported(None, None))
    assert (found.class_name, found.model, found.is_authoritative) == (None, KAFKA_RULES, True)
    (note,) = found.notes
    assert "No broker has the configured callback" in note


async def test_nothing_is_certain_where_no_broker_is_live():
    found = await in_use(reported())
    assert not found.is_authoritative
    assert found.notes[0].endswith("none is live.")


async def test_it_is_the_same_until_reports_or_leaders_change():
    share = ConfiguredCallback(OTHER, PartitionShare({"alice": frozenset({"orders"})}, {}))
    cluster = Cluster(reported(OTHER))
    callbacks = QuotaCallbacks(cluster.describe, share, cluster.leaders)
    first = await callbacks.now()
    assert await callbacks.now() is first
    assert cluster.asked == [frozenset({"orders"})] * 2
    cluster.cluster = ClusterMetadata((1,), {"orders": (1,)})
    second = await callbacks.now()
    assert (second.model, second.cluster) == (first.model, cluster.cluster)
    cluster.reports = reported(OTHER, None)
    assert not (await callbacks.now()).is_authoritative
