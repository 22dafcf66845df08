"""What passes our rules and is refused by the broker: a name that it can look up no more."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.http.service_calls import I, P, change, outcomes
from tests.testkit.kafka import LOCALHOST, unique
from tests.testkit.raw_quotas import RawQuotas, RequestLog
from tests.testkit.service import RunningService

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


def test_what_the_broker_refuses_holds_everything_back(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog, gone: str
) -> None:
    names = {"user": unique()}
    with broker_log.alterations() as arrived:
        answer = service.alter(change(names, {P: 5}), removal(gone))
    problem = answer.json()
    assert (answer.status_code, problem["sent_to_cluster"]) == (422, "no")
    assert [error["pointer"] for error in problem["errors"]] == ["/alterations/1"]
    assert [request["validateOnly"] for request in arrived] == [True]
    assert raw.stored(names) == {}
    record = service.api().get(answer.headers["Location"]).json()
    assert (record["outcome"], outcomes(record)) == ("refused", ["not_applied", "refused"])
    assert problem["results"] == record["results"]


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


def test_the_audit_log_keeps_what_the_broker_refused(
    service: RunningService, raw: RawQuotas, gone: str
) -> None:
    reason = unique("reason")
    service.alter(removal(gone), change({"user": unique()}, {P: 5}), reason=reason)
    api = service.api("auditor")
    rows = [
        row
        for row in api.get("/audit", params={"action": "alter"}).json()["rows"]
        if row["reason"] == reason
    ]
    assert [(row["action"], row["outcome"]) for row in rows] == [
        ("alter", "refused"),
        ("alter", "not_applied"),
    ]
    assert rows[0]["entity"] == {"ip": gone}
    assert rows[0]["error"]["kafka_error"] == "INVALID_REQUEST"
    assert "not a valid IP" in rows[0]["error"]["message"]
    assert (rows[0]["before"], rows[0]["after"]) == ({I: 5}, {I: 5})
    refused = api.get("/audit", params={"outcome": "refused", "entity": f"ip={gone}"})
    assert refused.status_code == httpx.codes.OK
    assert rows[0] in refused.json()["rows"]
