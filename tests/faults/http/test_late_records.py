"""The cluster has answered and the log is gone: the answer is true, and recorded later."""

from concurrent.futures import ThreadPoolExecutor

from app.localdev.postgres import LocalPostgres
from tests.faults.http.conftest import Script
from tests.testkit.fake_kafka.server import ALTER, HeldAlterations, verdict
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ask, change, outage
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService

ALTERATIONS = "/quotas/alterations"


def test_an_outcome_that_cannot_be_recorded_is_answered_and_recorded_later(
    script: Script, scripted_service: RunningService, database: LocalPostgres
) -> None:
    held = HeldAlterations(verdict())
    script(ALTER, held)
    body = change(unique("late"), wait="none")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, scripted_service, "POST", ALTERATIONS, body)
        held.wait()
        with outage(database, "paused"):
            held.release()
            answer = waiting.result()
    problem = problem_of(answer, 503)
    assert problem["code"] == "outcome-not-recorded"
    assert (problem["sent_to_cluster"], problem["retry"]) != ("no", "safe")
    assert problem["sent_to_cluster"] == "yes"
    assert [result["outcome"] for result in problem["results"]] == ["applied"]

    def outcome() -> str:
        return str(ask(scripted_service, "GET", answer.headers["Location"]).json()["outcome"])

    wait_until(lambda: outcome() == "applied", "the outcome was not recorded")
    assert held.count == 1


def test_a_second_alteration_of_an_entity_waits_for_the_first_or_is_refused(
    script: Script, scripted_service: RunningService
) -> None:
    held = HeldAlterations(verdict())
    script(ALTER, held)
    body = change(unique("busy"), wait="none")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, scripted_service, "POST", ALTERATIONS, body)
        held.wait()
        second = ask(scripted_service, "POST", ALTERATIONS, body)
        held.release()
    problem = problem_of(second, 409)
    assert (problem["code"], problem["sent_to_cluster"]) == ("entity-busy", "no")
    assert int(second.headers["Retry-After"]) >= 1
    assert first.result().status_code == 200
    assert held.count == 1
