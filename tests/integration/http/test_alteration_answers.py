"""How an alteration answers: waits, expectations, and what the service or the broker refuses."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.service_calls import C, I, M, P, R, applied, change, outcomes, rows
from tests.testkit.kafka import LOCALHOST, unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, RequestLog
from tests.testkit.service import RunningService


def test_without_all_or_nothing_the_others_are_applied(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    first, bad, last = ({"user": unique()} for _ in range(3))
    with broker_log.alterations() as arrived:
        answer = service.alter(
            change(first, {P: 5}), change(bad, {P: 0}), change(last, {P: 6}), all_or_nothing=False
        )
    document = answer.json()
    assert (answer.status_code, document["outcome"], document["readable"]) == (207, "partial", True)
    assert outcomes(document) == ["applied", "refused", "applied"]
    refused = document["results"][1]
    assert (refused["entity"], refused["changed"]) == (bad, False)
    assert refused["error"]["kafka_error"] == "INVALID_REQUEST"
    assert [raw.stored(item) for item in (first, bad, last)] == [{P: 5.0}, {}, {P: 6.0}]
    (request,) = arrived
    assert [entry["entity"][0]["entityName"] for entry in request["entries"]] == [
        first["user"],
        last["user"],
    ]
    record = service.api().get(answer.headers["Location"]).json()
    assert record["results"] == document["results"]


@pytest.mark.parametrize(
    ("options", "readable"),
    [
        ({}, True),
        ({"wait": "readable"}, True),
        ({"wait": "all_brokers"}, True),
        ({"wait": "none"}, None),
        ({"wait": "none", "wait_ms": 0}, None),
        ({"wait_ms": 60_000}, True),
        ({"wait": "all_brokers", "wait_ms": 0}, False),
    ],
)
def test_an_alteration_answers_when_it_was_asked_to(
    service: RunningService, raw: RawQuotas, options: dict[str, Any], readable: object
) -> None:
    names = {"user": unique()}
    answer = service.alter(change(names, {P: 5}), **options)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "applied")
    assert answer.json()["readable"] is readable
    if readable:
        assert raw.stored(names) == {P: 5.0}
    wait_until(lambda: raw.stored(names) == {P: 5.0})


def test_a_reason_of_a_thousand_characters_is_stored(service: RunningService) -> None:
    reason = "\N{GRINNING FACE}" * 999 + "\n"
    answer = service.alter(change({"user": unique()}, {P: 5}), reason=reason)
    assert answer.status_code == 200
    assert service.api().get(answer.headers["Location"]).json()["reason"] == reason


def test_expectations_that_hold_let_the_alteration_pass(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique(), "client-id": None}
    raw.store(names, {P: float("nan"), R: float("inf"), C: 2.0**63})
    expected = {P: "NaN", R: "Infinity", C: 9223372036854775807, M: None}
    answer = service.alter({**change(names, {P: 5}), "expected": expected})
    assert answer.status_code == 200
    assert answer.json()["results"][0]["after"] == {P: 5, R: "Infinity", C: 9223372036854775807}


@pytest.mark.parametrize(
    "expected",
    [{P: 6}, {P: None}, {C: 5}, {P: 5, C: 5}, {P: "NaN"}, {P: 5.0000001}, {"unheard_of": 1}],
)
@pytest.mark.parametrize("options", [{}, {"all_or_nothing": False}, {"validate_only": True}])
def test_an_expectation_that_does_not_hold_is_412_and_nothing_is_sent(
    service: RunningService,
    raw: RawQuotas,
    broker_log: RequestLog,
    expected: dict[str, Any],
    options: dict[str, Any],
) -> None:
    names, other = {"user": unique()}, {"user": unique()}
    raw.store(names, {P: 5.0, R: float("nan")})
    with broker_log.nothing_arrives():
        answer = service.alter(
            change(other, {P: 1}), {**change(names, {P: 7}), "expected": expected}, **options
        )
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (412, "expectation-failed")
    assert (problem["sent_to_cluster"], problem["kafka_error"]) == ("no", None)
    (error,) = problem["errors"]
    assert error["pointer"] == "/alterations/1/expected"
    assert error["values"] == {"current": {P: 5, R: "NaN"}}
    assert (raw.stored(other), raw.stored(names)[P]) == ({}, 5.0)
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["outcome"], outcomes(record)) == ("refused", ["not_applied", "refused"])


def test_the_record_is_the_answer_and_its_history(service: RunningService) -> None:
    names = {"user": unique(), "client-id": unique()}
    applied(service, names, {P: 5})
    answer = service.api().post(
        "/quotas/alterations",
        json={"alterations": [change(names, {P: 6, C: 7})], "reason": "INC-1"},
        headers={"X-Request-Id": "record-1"},
    )
    document = answer.json()
    assert answer.headers["X-Request-Id"] == "record-1"
    assert answer.headers["Location"] == f"/quotas/alterations/{document['alteration_id']}"
    record = service.api().get(answer.headers["Location"]).json()
    same = document.keys() - {"readable"}
    assert {name: record[name] for name in same} == {name: document[name] for name in same}
    assert record["principal"] == "User:alice"
    assert record["client_address"] == "127.0.0.1"
    assert (record["reason"], record["request_id"]) == ("INC-1", "record-1")
    assert [item["event"] for item in record["history"]] == ["intent", "sent", "outcome"]
    times = [datetime.fromisoformat(item["at"]) for item in record["history"]]
    assert times == sorted(times)
    assert all(item["at"].endswith("Z") and len(item["at"]) == 24 for item in record["history"])


def test_a_validation_has_a_record_in_which_nothing_was_sent(service: RunningService) -> None:
    answer = service.alter(change({"user": unique()}, {P: 5}), validate_only=True)
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["validate_only"], record["outcome"]) == (True, "validated")
    assert record["results"] == answer.json()["results"]
    assert "sent" not in [item["event"] for item in record["history"]]


def test_a_record_is_for_its_principal_and_for_auditors(service: RunningService) -> None:
    answer = service.alter(change({"user": unique()}, {P: 5}))
    location = answer.headers["Location"]
    for principal in ("alice", "auditor"):
        assert service.api(principal).get(location).status_code == 200
    for principal in ("bob", "mallory", "root"):
        refused = service.api(principal).get(location)
        assert (refused.status_code, refused.json()["code"]) == (404, "not-found")
    unknown = service.api("bob").get(f"/quotas/alterations/{json.loads(answer.text)['cluster_id']}")
    assert unknown.json()["detail"] == refused.json()["detail"]


def test_an_alteration_that_there_is_not_is_404(
    service: RunningService, subtests: pytest.Subtests
) -> None:
    for alteration_id in [
        *("0", "nonsense", "' or 1=1 --", "..%2F..", "%00", "a%0Ab", "%F0%9F%98%80", "x" * 2000),
        *("00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
        *("{01a1fd86-e424-79d5-8988-95fc8beb4b91}", "01a1fd86e42479d5898895fc8beb4b91"),
        *("01a1fd86-e424-79d5-8988-95fc8beb4b91", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ]:
        with subtests.test(alteration_id=alteration_id):
            for principal in ("alice", "auditor"):
                answer = service.api(principal).get(f"/quotas/alterations/{alteration_id}")
                assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_entity_that_our_rules_refuse_has_the_values_that_stay(
    service: RunningService, validate_only: bool
) -> None:
    stays, changes, unknown = ({"user": unique()} for _ in range(3))
    assert service.alter(change(stays, {P: 7})).status_code == 200
    answer = service.alter(
        change(stays, {P: 0, C: 5}),
        change(changes, {P: 5}),
        change(unknown, {C: 0.5}),
        change({"ip": "a.host.name"}, {"connection_creation_rate": 5}),
        all_or_nothing=False,
        validate_only=validate_only,
    )
    assert answer.status_code == 207
    done = answer.json()["results"]
    assert [(item["outcome"], item["before"], item["after"]) for item in done] == [
        ("refused", {P: 7}, {P: 7}),
        ("validated" if validate_only else "applied", {}, {P: 5}),
        ("refused", {}, {}),
        ("refused", {}, {}),
    ]
    assert service.api().get(answer.headers["Location"]).json()["results"] == done


Let = Callable[[str, bool], None]


@pytest.fixture
def let_resolve(hosts: Path) -> Let:
    """Returns a function that lets the broker's Java find an address for a name, or none."""

    def let(name: str, is_found: bool) -> None:
        hosts.write_text(LOCALHOST + (f"10.88.0.1 {name}\n" if is_found else ""))

    return let


@pytest.fixture
def gone(let_resolve: Let, raw: RawQuotas) -> Iterator[str]:
    """A name under which a limit is stored, and which does not resolve any more."""
    name = f"{unique('gone')}.example"
    let_resolve(name, True)
    raw.store({"ip": name}, {I: 5.0})
    let_resolve(name, False)
    yield name
    let_resolve(name, True)
    raw.store({"ip": name}, {I: None})
    let_resolve(name, False)


def removal(name: str) -> dict[str, Any]:
    return change({"ip": name}, {I: None})


def test_c052_a_host_name_that_resolves_no_longer_cannot_be_removed_and_the_broker_says_so(
    service: RunningService, raw: RawQuotas, let_resolve: Let, gone: str
) -> None:
    answer = service.alter(removal(gone))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "refused-by-broker")
    assert (problem["kafka_error"], problem["sent_to_cluster"]) == ("INVALID_REQUEST", "yes")
    (error,) = problem["errors"]
    assert error["pointer"] == "/alterations/0"
    assert "not a valid IP or resolvable host" in error["detail"]
    assert raw.stored({"ip": gone}) == {I: 5.0}
    let_resolve(gone, True)
    assert service.alter(removal(gone)).json()["outcome"] == "applied"
    assert raw.stored({"ip": gone}) == {}


def test_what_the_broker_refuses_holds_everything_back_and_is_in_the_audit_log(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog, gone: str
) -> None:
    names, reason = {"user": unique()}, unique("reason")
    with broker_log.alterations() as arrived:
        answer = service.alter(change(names, {P: 5}), removal(gone), reason=reason)
    problem = answer.json()
    assert (answer.status_code, problem["sent_to_cluster"]) == (422, "no")
    assert problem["kafka_error"] == "INVALID_REQUEST"
    assert [error["pointer"] for error in problem["errors"]] == ["/alterations/1"]
    assert [request["validateOnly"] for request in arrived] == [True]
    assert raw.stored(names) == {}
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["outcome"], outcomes(record)) == ("refused", ["not_applied", "refused"])
    assert problem["results"] == record["results"]
    _, logged = (row for row in rows(service, action="alter") if row["reason"] == reason)
    assert (logged["outcome"], logged["entity"]) == ("refused", {"ip": gone})
    assert logged["error"]["kafka_error"] == "INVALID_REQUEST"
    assert "not a valid IP" in logged["error"]["message"]
    assert (logged["before"], logged["after"]) == ({I: 5}, {I: 5})
    assert logged in rows(service, outcome="refused", entity=f"ip={gone}")


def test_without_all_or_nothing_what_the_broker_refuses_is_refused_alone(
    service: RunningService, raw: RawQuotas, gone: str
) -> None:
    names, bad = {"user": unique()}, {"user": unique()}
    answer = service.alter(
        change(bad, {P: 0}), removal(gone), change(names, {P: 5}), all_or_nothing=False
    )
    document = answer.json()
    assert (answer.status_code, document["outcome"]) == (207, "partial")
    assert outcomes(document) == ["refused", "refused", "applied"]
    assert document["results"][1]["before"] == document["results"][1]["after"] == {I: 5}
    assert raw.stored(names) == {P: 5.0}


@pytest.mark.parametrize("others", [0, 1])
def test_without_all_or_nothing_nothing_but_refusals_is_422(
    service: RunningService, raw: RawQuotas, gone: str, others: int
) -> None:
    bad = [change({"user": unique()}, {P: 0})] * others
    answer = service.alter(removal(gone), *bad, all_or_nothing=False)
    assert (answer.status_code, answer.json()["code"]) == (422, "refused-by-broker")
    assert len(answer.json()["errors"]) == 1 + others


@pytest.mark.parametrize(("all_or_nothing", "status"), [(True, 422), (False, 207)])
def test_a_validation_tells_what_the_broker_would_refuse(
    service: RunningService, raw: RawQuotas, gone: str, *, all_or_nothing: bool, status: int
) -> None:
    names = {"user": unique()}
    answer = service.alter(
        change(names, {P: 5}), removal(gone), validate_only=True, all_or_nothing=all_or_nothing
    )
    assert answer.status_code == status
    assert outcomes(answer.json())[1] == "refused"
    assert raw.stored(names) == {}
