"""Who watches for drift, where several could: one that can."""

from collections.abc import AsyncIterator

import pytest

from app.domain.errors import NotSentError
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.recovery.drift import DriftWatch
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import AuditDatabase


@pytest.fixture
async def two(audit_database: AuditDatabase) -> AsyncIterator[tuple[Database, Database]]:
    both = (
        Database(audit_database.service_url, patience=PATIENT),
        Database(audit_database.service_url, patience=PATIENT),
    )
    yield both
    for item in both:
        await item.close()


async def test_who_cannot_reach_the_cluster_lets_another_watch(two: tuple[Database, Database]):
    brokers = FakeBrokers([]), FakeBrokers([])
    journals = [PostgresDriftJournal(database) for database in two]
    blind, seeing = (
        DriftWatch(each, Barrier(each, CurrentValues(each)), journal, CountedMetrics())
        for each, journal in zip(brokers, journals, strict=True)
    )
    brokers[0].reachable = False
    with pytest.raises(NotSentError):
        await blind.round()
    await seeing.round()
    assert await journals[1].baseline("fake") == {}
    assert not await journals[0].try_lead("fake")
