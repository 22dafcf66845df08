"""Error codes of Kafka, before, during and after a failover: no outcome is claimed uncertainly."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from app.domain.entities import ClientQuotaEntity
from tests.faults.http.conftest import Serve
from tests.testkit.fake_kafka.cluster import FakeCluster, Fault
from tests.testkit.fake_kafka.controller import CONTROLLER_ID
from tests.testkit.fake_kafka.messages import alter_answer, describe_answer, quorum_answer
from tests.testkit.fake_kafka.quotas import Verdict
from tests.testkit.fake_kafka.server import DESCRIBE, DESCRIBE_QUORUM, answering
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, alter, ask, change, until_done
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

SOME: Final = (-1, 7, 8, 13, 14, 41, 9999, -32768, 0, 31, 44, 89)
"""UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE, NETWORK_EXCEPTION,
COORDINATOR_LOAD_IN_PROGRESS, NOT_CONTROLLER, two of no name, NONE, and three refusals."""

CODES: Final = size(SOME, (*range(-2, 140), 9999, 32767, -32768))

DEFINITE: Final = frozenset({31, 35, 40, 42, 44, 54, 89})
"""With these a broker says for certain that nothing was applied."""

UNKNOWN: Final = [code for code in SOME if code and code not in DEFINITE]


def answered(codes: Mapping[str, int]) -> Fault:
    """Answer each user with its code, and apply nothing."""
    verdicts = [
        Verdict(ClientQuotaEntity.of({"user": name}), code, None) for name, code in codes.items()
    ]
    return Fault(applies=(), reply=answering(alter_answer(verdicts)))


def outcome_of(code: int) -> str:
    if code == 0:
        return "applied"
    return "refused" if code in DEFINITE else "unknown"


@pytest.mark.parametrize("neighbour", [None, 0, 42, 41])
def test_what_is_not_definite_is_unknown_whatever_the_others_are(
    fake_kafka: FakeCluster, scripted_service: RunningService, neighbour: int | None
) -> None:
    for code in CODES:
        codes = {unique("code"): code}
        if neighbour is not None:
            codes[unique("neighbour")] = neighbour
        fake_kafka.fail_next(answered(codes))
        changes = [change(name)["alterations"][0] for name in codes]
        body = {"alterations": changes, "wait": "none", "all_or_nothing": False}
        answer = ask(scripted_service, "POST", ALTERATIONS, body)
        expected = [outcome_of(each) for each in codes.values()]
        assert outcomes(answer.json()) == expected, code
        record = recorded(scripted_service, answer.json()["alteration_id"])
        assert outcomes(record) == expected, code
        assert all(fake_kafka.sent(name) == 1 for name in codes)
        if "unknown" in expected:
            problem = problem_of(answer, 504)
            reported = (problem["code"], problem["sent_to_cluster"], problem["retry"])
            assert reported == ("outcome-unknown", "maybe", "same-key-only"), code
        elif "applied" not in expected:
            assert problem_of(answer, answer.status_code)["sent_to_cluster"] == "yes"


def outcomes(document: Mapping[str, Any]) -> list[str]:
    return [result["outcome"] for result in document["results"]]


def recorded(service: RunningService, alteration_id: str) -> dict[str, Any]:
    record: dict[str, Any] = ask(service, "GET", f"{ALTERATIONS}/{alteration_id}").json()
    return record


@pytest.mark.parametrize("entries", [None, []])
def test_an_error_of_a_describe_is_never_no_quotas(
    fake_kafka: FakeCluster, scripted_service: RunningService, entries: list[Any] | None
) -> None:
    user = unique("unsent")
    for code in CODES:
        if code == 0:
            continue
        reply = describe_answer(code)
        reply.entries = entries
        fake_kafka.reply_with(DESCRIBE, answering(reply))
        try:
            answers = [
                ask(scripted_service, "GET", "/quotas?filter=user=a", principal="bob"),
                ask(scripted_service, "GET", "/quotas/resolve?user=a&max_age_ms=0"),
                alter(scripted_service, user),
            ]
        finally:
            fake_kafka.reply_with(DESCRIBE, None)
        for answer in answers:
            assert problem_of(answer, answer.status_code)["sent_to_cluster"] == "no", code
    assert fake_kafka.sent(user) == 0


def test_nothing_is_sent_while_a_new_controller_does_not_know_what_is_committed(
    fake_kafka: FakeCluster, scripted_service: RunningService
) -> None:
    user = unique("unsent")
    fake_kafka.change_controller()
    fake_kafka.reply_with(DESCRIBE_QUORUM, answering(quorum_answer(CONTROLLER_ID, 2, -1)))
    try:
        problem = problem_of(alter(scripted_service, user), 503)
    finally:
        fake_kafka.reply_with(DESCRIBE_QUORUM, None)
    reported = (problem["code"], problem["sent_to_cluster"], problem["retry"])
    assert reported == ("not-sent", "no", "safe")
    assert outcomes(recorded(scripted_service, problem["alteration_id"])) == ["not_sent"]
    assert fake_kafka.sent(user) == 0
    until_done(lambda: alter(scripted_service, user), "the new controller is asked in vain")


def test_what_was_answered_with_an_error_in_a_failover_is_concluded_as_it_was_applied(
    fake_kafka: FakeCluster, serve: Serve
) -> None:
    service, found = serve(test_final_after_s="2"), dict[str, str]()
    for code in UNKNOWN:
        for applies, outcome in (((), "not_applied"), ((0.0,), "applied"), ((0.5,), "applied")):
            fake_kafka.fail_next(Fault(applies=applies, error_code=code))
            answer = alter(service, unique("failover"), wait="none")
            found[problem_of(answer, 504)["alteration_id"]] = outcome
        fake_kafka.change_controller()

    def concluded() -> bool:
        documents = {each: outcomes(recorded(service, each)) for each in found}
        return documents == {each: [outcome] for each, outcome in found.items()}

    wait_until(concluded, "recovery has found something else")
