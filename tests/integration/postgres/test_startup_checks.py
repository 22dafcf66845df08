"""What Postgres and the brokers say of themselves, before the service starts."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from app import dependency_checks
from app.domain.errors import NotSentError
from app.kafka.config import KafkaSettings
from app.postgres import schema
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.schema import ServerFacts
from app.service.ports.audit_log import AuditQuery
from app.service.runtime import clock
from app.settings import Settings, SettingsError
from app.startup_checks import check_dependencies
from tests.integration.postgres.calls import request_of, run_as
from tests.testkit.fake_kafka.server import FakeBroker, fake_broker
from tests.testkit.kafka import brokers_of
from tests.testkit.patience import PATIENT, settings_of
from tests.testkit.postgres import AuditDatabase, intend

SECOND = timedelta(seconds=1)
NOBODY = "127.0.0.1:1"


def time_in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def settings(url: str, kafka: str = NOBODY, **more: str) -> Settings:
    settings = {"DATABASE_URL": url, "KAFKA_BOOTSTRAP_SERVERS": kafka, **more}
    settings = {**{name.upper(): value for name, value in settings_of(PATIENT).items()}, **settings}
    return Settings.from_env({f"QUOTAS_{name}": value for name, value in settings.items()})


async def facts_of(url: str) -> ServerFacts:
    database = Database(url, patience=PATIENT)
    try:
        return await schema.server_facts(database)
    finally:
        await database.close()


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with fake_broker({}) as running:
        yield running


async def test_a_refused_connection_is_not_taken_for_an_outage(audit_database: AuditDatabase):
    url = audit_database.service_url
    for wrong, cause in {
        url.replace("quotas_service:", "quotas_service:x"): "refuses the password",
        url.replace("quotas_service:", "nobody:"): "refuses the password",
        url.replace(audit_database.name, "no_such_database"): "the database does not exist",
    }.items():
        with pytest.raises(NotSentError, match=cause):
            await facts_of(wrong)


async def test_the_server_tells_what_is_off_and_who_asks(audit_database: AuditDatabase):
    facts = await facts_of(audit_database.service_url)
    assert facts.off == ("fsync",)
    assert (facts.role, facts.owns_the_log, facts.is_superuser) == ("quotas_service", False, False)
    assert abs(facts.clock_ahead_s) < 5
    assert (await facts_of(audit_database.owner_url)).owns_the_log
    assert (await facts_of(audit_database.superuser_url)).is_superuser


async def test_a_role_that_does_not_wait_for_its_commits_is_seen(audit_database: AuditDatabase):
    change = f"alter role quotas_service in database {audit_database.name} set synchronous_commit"
    run_as(audit_database.superuser_url, f"{change} = off")
    assert (await facts_of(audit_database.service_url)).off == ("fsync", "synchronous_commit")


async def test_a_postgres_here_is_warned_of_and_one_elsewhere_refused(
    audit_database: AuditDatabase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with caplog.at_level(logging.WARNING):
        await check_dependencies(settings(audit_database.service_url))
    assert "Postgres has fsync off" in caplog.text
    monkeypatch.setattr(dependency_checks, "is_local_postgres", lambda _: False)
    with pytest.raises(SettingsError, match="QUOTAS_DATABASE_URL: Postgres has fsync off"):
        await check_dependencies(settings(audit_database.service_url))
    await check_dependencies(settings(audit_database.service_url, MODE="development"))


@pytest.mark.parametrize("ahead_s", [-60.0, 60.0])
async def test_a_clock_that_is_off_is_refused(
    audit_database: AuditDatabase, monkeypatch: pytest.MonkeyPatch, ahead_s: float
):
    off = SimpleNamespace(time=lambda: time.time() - ahead_s)
    monkeypatch.setattr(schema, "time", off)
    with pytest.raises(
        SettingsError, match=r"[Tt]he clock of Postgres differs by [+-](5|6)\d\.\d s"
    ):
        await check_dependencies(settings(audit_database.service_url))


@pytest.mark.parametrize("days", [-2, 2, 400])
async def test_a_clock_that_jumps_is_reported_and_ids_keep_to_the_time_of_postgres(
    audit_database: AuditDatabase, monkeypatch: pytest.MonkeyPatch, days: int
):
    off = SimpleNamespace(**vars(time))
    off.time = lambda: time.time() + days * 86_400
    off.time_ns = lambda: time.time_ns() + days * 86_400 * 1_000_000_000
    monkeypatch.setattr(schema, "time", off)
    monkeypatch.setattr(clock, "time", off)
    monkeypatch.setattr(clock, "DATABASE_CLOCK", clock.DatabaseClock())
    monkeypatch.setattr(schema, "DATABASE_CLOCK", clock.DATABASE_CLOCK)
    database = Database(audit_database.service_url)
    journal, begun = PostgresJournal(database), datetime.now(UTC)
    try:
        problem = await schema.clock_problem(database)
        assert problem is not None
        ahead = re.match(r"The clock of Postgres differs by ([+-]\d+\.\d) s from", problem)
        assert ahead is not None
        assert abs(timedelta(days=days, seconds=float(ahead[1]))) < timedelta(minutes=1)
        request = replace(request_of("alice"), alteration_id=clock.new_alteration_id())
        await intend(journal, request)
        window = AuditQuery(since=begun - SECOND, until=begun + 60 * SECOND)
        (row,) = (await journal.audit_rows(window)).rows
        assert row.alteration_id == request.alteration_id
    finally:
        await database.close()


async def test_clocks_that_agree_are_no_problem(audit_database: AuditDatabase):
    database = Database(audit_database.service_url)
    assert await schema.clock_problem(database) is None
    assert abs(clock.DATABASE_CLOCK.ahead_s()) < clock.MOST_APART_S
    await database.close()


async def test_a_log_of_another_version_is_refused_in_production_alone(
    audit_database: AuditDatabase, caplog: pytest.LogCaptureFixture
):
    run_as(audit_database.owner_url, "update alembic_version set version_num = '0000'")
    with pytest.raises(SettingsError, match="older than"):
        await check_dependencies(settings(audit_database.service_url))
    with caplog.at_level(logging.WARNING):
        await check_dependencies(settings(audit_database.service_url, MODE="development"))
    assert "unsafe: QUOTAS_DATABASE_URL: The schema is at 0000" in caplog.text


async def test_an_owner_of_the_log_is_warned_of(
    audit_database: AuditDatabase, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        await check_dependencies(settings(audit_database.owner_url))
    assert "the role quotas_owner owns the audit log" in caplog.text


async def test_what_is_down_may_come_later(caplog: pytest.LogCaptureFixture):
    down = settings("postgresql://quotas@127.0.0.1:1/quotas", CLUSTER_ID="fake")
    with caplog.at_level(logging.WARNING):
        await check_dependencies(down)
    assert "the audit log cannot be looked at yet" in caplog.text
    assert "the cluster cannot be looked at yet" in caplog.text


@pytest.mark.parametrize("mode", ["production", "development"])
async def test_another_cluster_than_the_one_that_is_named_is_refused(
    audit_database: AuditDatabase, broker: FakeBroker, mode: str
):
    url, servers = audit_database.service_url, broker.bootstrap_servers
    await check_dependencies(settings(url, servers, CLUSTER_ID="fake", MODE=mode))
    with pytest.raises(SettingsError, match="QUOTAS_CLUSTER_ID: The brokers are of the cluster"):
        await check_dependencies(settings(url, servers, CLUSTER_ID="other", MODE=mode))


async def test_another_cluster_that_comes_later_gets_no_request(broker: FakeBroker):
    expected = KafkaSettings(broker.bootstrap_servers, cluster_id="fake")
    async with brokers_of(expected) as brokers:
        await brokers.preferred(time_in(30))
        assert brokers.cluster_id == "fake"
        broker.cluster_id = "other"
        with pytest.raises(NotSentError) as caught:
            await brokers.view(time_in(30), fresh=True)
        assert caught.value.code == "wrong-cluster"
