"""A broker that answers errors, nonsense or nothing: a defined answer, whatever it does."""

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.faults.http.conftest import Serve
from tests.testkit.fake_kafka.cluster import FakeCluster, Fault
from tests.testkit.fake_kafka.messages import acls_answer, describe_answer, versions_answer
from tests.testkit.fake_kafka.server import (
    API_VERSIONS,
    BEFORE_2_6,
    DESCRIBE,
    DESCRIBE_ACLS,
    Reply,
    answering,
    closing,
    raw,
    sending,
)
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.outages import alter, ask, until_done
from tests.testkit.patience import PROMPT
from tests.testkit.service import RunningService

HTTP = raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
NOISE = sending(bytes(range(1, 200)))
HUGE = raw(struct.pack(">i", 2**31 - 1) + b"x" * 100_000)

Script = Callable[[int, Reply | None], None]
"""Replaces the answer to a kind of request, by its API key; null is the healthy one again."""


@pytest.fixture
def script(fake_kafka: FakeCluster) -> Iterator[Script]:
    """What a test lets the broker answer; healthy again afterwards."""

    def answer(api_key: int, reply: Reply | None) -> None:
        fake_kafka.reply_with(api_key, reply)
        if api_key == API_VERSIONS:
            fake_kafka.hang_up(1)

    yield answer
    for api_key in (DESCRIBE, DESCRIBE_ACLS, API_VERSIONS):
        answer(api_key, None)


def describe_error(code: int, message: str | None = None) -> Reply:
    return answering(describe_answer(code, message))


DESCRIBES: dict[str, tuple[Reply, int, str]] = {
    "HTTP": (HTTP, 502, "broker-answer-too-large"),
    "noise": (NOISE, 502, "broker-answer-unreadable"),
    "two gigabytes": (HUGE, 502, "broker-answer-too-large"),
    "a closed connection": (closing, 503, "cluster-unreachable"),
    "UNKNOWN_SERVER_ERROR": (describe_error(-1, "oops"), 502, "broker-error"),
    "CLUSTER_AUTHORIZATION_FAILED": (describe_error(31), 502, "service-account-not-authorized"),
    "UNSUPPORTED_VERSION": (describe_error(35), 422, "invalid-request"),
    "an unknown error": (describe_error(9999), 502, "broker-error"),
}


@pytest.mark.parametrize("name", DESCRIBES)
def test_a_describe_that_fails_has_a_defined_answer(
    script: Script, scripted_service: RunningService, fake_kafka: FakeCluster, name: str
) -> None:
    reply, status, code = DESCRIBES[name]
    user = unique("unsent")
    script(DESCRIBE, reply)
    problem = problem_of(ask(scripted_service, "GET", "/quotas", principal="bob"), status)
    assert problem["code"] == code
    assert problem["sent_to_cluster"] == "no"
    answer = alter(scripted_service, user)
    assert problem_of(answer, status)["sent_to_cluster"] == "no"
    assert fake_kafka.sent(user) == 0


UNKNOWN: dict[str, Fault] = {
    "HTTP": Fault(applies=(), reply=HTTP),
    "noise": Fault(applies=(), reply=NOISE),
    "two gigabytes": Fault(applies=(), reply=HUGE),
    "a closed connection": Fault(applies=(), reply=closing),
    "UNKNOWN_SERVER_ERROR": Fault(applies=(), error_code=-1),
    "REQUEST_TIMED_OUT": Fault(applies=(), error_code=7),
    "NETWORK_EXCEPTION": Fault(applies=(), error_code=13),
    "NOT_CONTROLLER": Fault(applies=(), error_code=41),
    "an unknown error": Fault(applies=(), error_code=9999),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_alteration_without_a_definite_answer_is_unknown_and_recorded_so(
    fake_kafka: FakeCluster, scripted_service: RunningService, name: str
) -> None:
    user = unique("unknown")
    fake_kafka.fail_next(UNKNOWN[name])
    answer = alter(scripted_service, user, wait="none")
    problem = problem_of(answer, 504)
    assert problem["code"] == "outcome-unknown"
    assert (problem["sent_to_cluster"], problem["retry"]) == ("maybe", "same-key-only")
    assert fake_kafka.sent(user) == 1
    record = ask(scripted_service, "GET", answer.headers["Location"]).json()
    assert record["outcome"] == "unknown"
    assert [result["outcome"] for result in record["results"]] == ["unknown"]
    assert [event["event"] for event in record["history"]] == ["intent", "sent", "outcome"]


REFUSED = {
    "INVALID_REQUEST": (42, 422, "refused-by-broker"),
    "POLICY_VIOLATION": (44, 422, "refused-by-broker"),
    "INVALID_CONFIG": (40, 422, "refused-by-broker"),
    "CLUSTER_AUTHORIZATION_FAILED": (31, 502, "service-account-not-authorized"),
    "SECURITY_DISABLED": (54, 502, "service-account-not-authorized"),
    "THROTTLING_QUOTA_EXCEEDED": (89, 429, "throttled-by-broker"),
    "UNSUPPORTED_VERSION": (35, 501, "unsupported-broker-version"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_alteration_that_a_broker_refuses_is_answered_with_its_error(
    fake_kafka: FakeCluster, scripted_service: RunningService, name: str
) -> None:
    error_code, status, code = REFUSED[name]
    words = "the broker's own words"
    fake_kafka.fail_next(Fault(applies=(), error_code=error_code, message=words))
    answer = alter(scripted_service, unique("refused"), wait="none")
    problem = problem_of(answer, status)
    assert (problem["code"], problem["kafka_error"]) == (code, name)
    assert problem["sent_to_cluster"] == "yes"
    assert words in answer.text
    assert ("Retry-After" in answer.headers) == (status == 429)
    record = ask(scripted_service, "GET", answer.headers["Location"]).json()
    (result,) = record["results"]
    assert (result["outcome"], result["error"]["kafka_error"]) == ("refused", name)


def test_a_broker_before_2_6_is_reported_as_too_old(
    script: Script, scripted_service: RunningService, fake_kafka: FakeCluster
) -> None:
    user = unique("unsent")
    script(API_VERSIONS, answering(versions_answer(BEFORE_2_6)))
    for answer in (
        ask(scripted_service, "GET", "/quotas", principal="bob"),
        ask(scripted_service, "GET", "/quotas/resolve?user=a&max_age_ms=0", principal="bob"),
        alter(scripted_service, user),
        alter(scripted_service, user, validate_only=True),
    ):
        problem = problem_of(answer, 501)
        assert problem["code"] == "unsupported-broker-version"
        assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
    assert fake_kafka.sent(user) == 0


ACL_FAULTS: dict[str, tuple[int, Reply]] = {
    "noise": (DESCRIBE_ACLS, NOISE),
    "a closed connection": (DESCRIBE_ACLS, closing),
    "not loaded yet": (DESCRIBE_ACLS, answering(acls_answer(code=-1))),
    "the service's account may not read them": (DESCRIBE_ACLS, answering(acls_answer(code=31))),
    "no broker at all": (API_VERSIONS, HTTP),
}


def test_without_acls_nobody_passes_but_super_users(script: Script, serve: Serve) -> None:
    service = serve(patience=PROMPT)  # it has no ACL yet
    for fault, (api, reply) in ACL_FAULTS.items():
        script(api, reply)
        for answer in (
            ask(service, "GET", "/quotas"),
            alter(service, "unsent"),
        ):
            problem = problem_of(answer, 503)
            assert problem["code"] == "acl-source-unreachable", fault
            assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "safe")
        if api == DESCRIBE_ACLS:
            assert ask(service, "GET", "/quotas", principal="root").status_code == 200
        script(api, None)
    until_done(lambda: ask(service, "GET", "/quotas"), "the ACLs are still not read")
