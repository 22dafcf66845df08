"""Recovery and the watch for drift say when Postgres is away, and go on when it is back."""

from collections.abc import Awaitable

import pytest

from app.domain.alterations import AlterationResult, Outcome
from app.localdev.postgres import LocalPostgres
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.ports.recovery import Recovered
from app.service.runtime.clock import Patience
from tests.integration.postgres.calls import assert_unavailable
from tests.integration.postgres.locks import AFTER, request_of
from tests.integration.postgres.test_drift import changed
from tests.testkit.patience import PROMPT
from tests.testkit.postgres import CLUSTER


@pytest.fixture
def patience() -> Patience:
    return PROMPT


def quick_calls(database: Database) -> list[Awaitable[object]]:
    recovery, drift = PostgresRecovery(database), PostgresDriftJournal(database)
    request = request_of("alice")
    result = AlterationResult(request.entities[0].alteration.entity, Outcome.APPLIED)
    return [
        recovery.beat(CLUSTER, "me"),
        recovery.claim_open(CLUSTER, "me", limit=10),
        recovery.record_recovery(
            [Recovered(request.alteration_id, 0, result, final=True, evidence={})]
        ),
        drift.try_lead(CLUSTER),
        drift.keep_baseline(CLUSTER, {result.entity: AFTER}),
        drift.record_drift(CLUSTER, [changed("alice", {}, AFTER)]),
    ]


async def assert_works(database: Database) -> None:
    recovery, drift = PostgresRecovery(database), PostgresDriftJournal(database)
    await recovery.beat(CLUSTER, "me")
    assert await recovery.claim_open(CLUSTER, "me", limit=10) == []
    assert await drift.try_lead(CLUSTER)
    await drift.keep_baseline(CLUSTER, {})
    assert await drift.baseline(CLUSTER) == {}


async def test_a_server_that_hangs_times_out_while_it_hangs(
    postgres: LocalPostgres, database: Database
):
    await assert_works(database)
    postgres.pause()
    try:
        await assert_unavailable(*quick_calls(database))
    finally:
        postgres.resume()
    await assert_works(database)


async def test_a_server_that_is_down_is_an_error_and_one_that_is_back_is_used(
    postgres: LocalPostgres, database: Database
):
    await assert_works(database)
    drift = PostgresDriftJournal(database)
    postgres.kill()
    try:
        await assert_unavailable(
            *quick_calls(database), drift.baseline(CLUSTER), drift.recent_doubtful(CLUSTER, [])
        )
    finally:
        postgres.start()
    await assert_works(database)
