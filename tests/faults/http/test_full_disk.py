"""The disk of Postgres is full while something is planned, denied or already sent."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.localdev.postgres import LocalPostgres
from tests.testkit.fake_kafka.cluster import FakeCluster, Fault
from tests.testkit.fake_kafka.messages import Alteration
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, alter, ask, disk_full, until_done
from tests.testkit.patience import PROMPT, wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

pytestmark = pytest.mark.long

ENTITIES: Final = 2_000
"""A plan or an outcome of so many does not fit into what is left of a page."""

LONG_REASON: Final = "r" * 1000
WRITTEN_WITHIN_S: Final = 90.0
"""Attempts are written at the end of a minute."""


@pytest.fixture(scope="module")
def service(
    fake_kafka: FakeCluster, disk_database: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    _, url = migrated_database(disk_database, "full")
    folder, servers = tmp_path_factory.mktemp("full-disk"), fake_kafka.bootstrap_servers
    with running_service(folder, servers, url, patience=PROMPT) as running:
        yield running


def quotas_of(team: str) -> list[dict[str, Any]]:
    names = (f"{team}-{number}" for number in range(ENTITIES))
    return [{"entity": {"user": name}, "values": {"producer_byte_rate": 1024}} for name in names]


def changes_of(team: str) -> list[dict[str, Any]]:
    ops = [{"key": "producer_byte_rate", "value": 1024}]
    return [{"entity": each["entity"], "ops": ops} for each in quotas_of(team)]


def fill(service: RunningService) -> None:
    """Use up what is left of the pages."""
    wait_until(lambda: alter(service, unique("fill"), reason=LONG_REASON).status_code == 503)


def make_plan(service: RunningService) -> httpx.Response:
    document = {"apiVersion": "quotas/v1", "quotas": quotas_of(unique("planned"))}
    return ask(service, "POST", "/quotas/plans", {"document": document})


def test_no_plan_is_made_or_applied(
    service: RunningService, disk: Path, disk_database: LocalPostgres, fake_kafka: FakeCluster
) -> None:
    plan_id = make_plan(service).json()["plan_id"]
    apply = f"/quotas/plans/{plan_id}/apply"
    with disk_full(disk, disk_database):
        fill(service)
        sent = len(fake_kafka.alterations)
        for answer in (make_plan(service), ask(service, "POST", apply, {})):
            problem = problem_of(answer, 503)
            reported = (problem["code"], problem["sent_to_cluster"], problem["retry"])
            assert reported == ("audit-log-unavailable", "no", "safe")
        assert len(fake_kafka.alterations) == sent
    until_done(lambda: ask(service, "POST", apply, {}), "the plan is not applied later")


def test_a_denied_attempt_has_a_row_once_there_is_space(
    service: RunningService, disk: Path, disk_database: LocalPostgres
) -> None:
    with disk_full(disk, disk_database):
        fill(service)
        body = {"alterations": changes_of("denied")[:20], "reason": LONG_REASON}
        problem_of(ask(service, "POST", ALTERATIONS, body, principal="mallory"), 403)
    until_done(lambda: alter(service, unique("again")), "nothing is altered again")

    def rows() -> list[dict[str, Any]]:
        path = "/audit?action=denied&actor=User:mallory"
        found: list[dict[str, Any]] = ask(service, "GET", path, principal="auditor").json()["rows"]
        return found

    wait_until(rows, "the denied attempt has no row", WRITTEN_WITHIN_S)


def test_an_outcome_that_does_not_fit_any_more_is_recorded_later(
    service: RunningService, disk: Path, disk_database: LocalPostgres, fake_kafka: FakeCluster
) -> None:
    with ExitStack() as filled:

        def fill_now(alteration: Alteration) -> Fault | None:
            if not alteration.validate_only:
                fake_kafka.schedule = None
                filled.enter_context(disk_full(disk, disk_database))
            return None

        fake_kafka.schedule = fill_now
        body = {"alterations": changes_of(unique("outcome")), "wait": "none"}
        answer = ask(service, "POST", ALTERATIONS, body)
        problem = problem_of(answer, 503)
        assert (problem["code"], problem["sent_to_cluster"]) == ("outcome-not-recorded", "yes")
        assert {result["outcome"] for result in problem["results"]} == {"applied"}

    def outcome() -> str | None:
        found: str | None = ask(service, "GET", answer.headers["Location"]).json().get("outcome")
        return found

    wait_until(lambda: outcome() == "applied", "the outcome is not recorded")
