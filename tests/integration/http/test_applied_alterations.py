"""The numbered alter cases that are applied; the raw protocol tells what is stored."""

import pytest

from tests.integration.http.changes import C, I, M, P, R, applied, change
from tests.integration.http.refused_alterations import U, made_unique
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import Names, RawQuotas, RequestLog, printed
from tests.testkit.service import RunningService


def test_c001_c002_what_is_set_is_described_and_other_keys_stay(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique(), "client-id": unique()}
    result = applied(service, names, {P: 10000, C: 20000})
    assert (result["changed"], result["before"], result["after"]) == (
        True,
        {},
        {P: 10000, C: 20000},
    )
    assert raw.stored(names) == {P: 10000.0, C: 20000.0}
    result = applied(service, names, {P: 15000})
    assert result["before"] == {P: 10000, C: 20000}
    assert result["after"] == {P: 15000, C: 20000}
    assert raw.stored(names) == {P: 15000.0, C: 20000.0}
    assert raw.stored({"user": names["user"]}) == {}


def test_c004_c005_setting_and_removing_go_together_and_a_missing_key_may_be_removed(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    applied(service, names, {P: 5000, C: 20000})
    result = applied(service, names, {R: None})
    assert (result["changed"], result["after"]) == (False, {P: 5000, C: 20000})
    result = applied(service, names, {P: 20000, C: None, R: 12.3})
    assert result["after"] == {P: 20000, R: 12.3}
    assert raw.stored(names) == {P: 20000.0, R: 12.3}


def test_c007_removing_from_an_entity_that_was_never_configured_changes_nothing(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    names = {"user": unique("zzz")}
    with broker_log.alterations() as arrived:
        result = applied(service, names, {P: None})
    assert (result["changed"], result["before"], result["after"]) == (False, {}, {})
    assert len(arrived) == 1
    assert raw.stored(names) == {}


def test_setting_what_already_holds_is_applied_and_changes_nothing(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"client-id": unique()}
    applied(service, names, {P: 5, M: 0.5})
    result = applied(service, names, {P: 5.0, M: 0.5})
    assert (result["changed"], result["after"]) == (False, {P: 5, M: 0.5})
    assert raw.stored(names) == {P: 5.0, M: 0.5}


def test_removing_the_last_key_removes_the_entity(service: RunningService, raw: RawQuotas) -> None:
    names = {"user": unique(), "client-id": None}
    applied(service, names, {P: 5})
    assert applied(service, names, {P: None})["after"] == {}
    assert frozenset(names.items()) not in raw.everything()


def test_c008_validate_only_asks_the_broker_and_changes_nothing(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    names = {"user": unique()}
    applied(service, names, {P: 20000, R: 23.45})
    with broker_log.alterations() as arrived:
        answer = service.alter(change(names, {C: 50000}), validate_only=True)
    document = answer.json()
    assert (answer.status_code, document["outcome"], document["validate_only"]) == (
        200,
        "validated",
        True,
    )
    (result,) = document["results"]
    assert (result["outcome"], result["changed"]) == ("validated", True)
    assert result["before"] == {P: 20000, R: 23.45}
    assert result["after"] == {C: 50000, P: 20000, R: 23.45}
    assert [request["validateOnly"] for request in arrived] == [True]
    assert raw.stored(names) == {P: 20000.0, R: 23.45}


@pytest.mark.parametrize(
    ("names", "key", "value"),
    [
        (U, M, 0.5),
        (U, R, 0.01),
        (U, R, 1e9),
        (U, P, 1),
        (U, C, 2**53),
        (U, P, 2**63 - 1),
        (U, P, 2**63),
        ({"ip": "10.0.0.29"}, I, 2147483647),
        ({"user": "user with spaces"}, P, 20000),
        ({"user": " "}, P, 5),
        ({"client-id": "O=A client,CN=localhost"}, P, 5),
    ],
    ids=[
        "C022 half a partition",
        "the smallest percentage",
        "the largest percentage",
        "the smallest rate",
        "2^53",
        "2^63-1 means 2^63",
        "2^63",
        "C029 the connection rate that means unlimited",
        "C065 blanks in a name",
        "a blank name",
        "a distinguished name",
    ],
)
def test_an_unusual_value_or_name_is_stored_as_it_is(
    service: RunningService, raw: RawQuotas, names: Names, key: str, value: float
) -> None:
    names = made_unique(names)
    result = applied(service, names, {key: value})
    assert result["entity"] == names
    assert result["after"] == {key: min(value, 2**63 - 1)}
    assert printed(raw.stored(names)) == printed({key: value})
    assert applied(service, names, {key: None})["after"] == {}


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("2001:DB8:0:0::0:7", "2001:db8::7"),
        ("::ffff:10.0.0.77", "10.0.0.77"),
        ("::FFFF:a00:4e", "10.0.0.78"),
    ],
)
def test_an_address_is_written_in_its_canonical_text(
    service: RunningService, raw: RawQuotas, written: str, sent: str
) -> None:
    assert applied(service, {"ip": written}, {I: 5})["entity"] == {"ip": sent}
    assert raw.stored({"ip": sent}) == {I: 5.0}
    assert raw.stored({"ip": written}) == {}
    assert applied(service, {"ip": written}, {I: None})["entity"] == {"ip": sent}
    assert raw.stored({"ip": sent}) == {}


def test_a_user_with_the_prefix_of_a_principal_is_accepted_with_a_warning(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": f"User:{unique()}"}
    result = applied(service, names, {P: 5})
    assert [sentence for sentence in result["warnings"] if f"'User:{names['user']}'" in sentence]
    assert raw.stored(names) == {P: 5.0}
    assert "warnings" not in applied(service, {"user": unique()}, {P: 5})


def test_c064_the_name_default_in_brackets_is_not_the_default(
    service: RunningService, empty_cluster: RawQuotas
) -> None:
    applied(service, {"user": "<default>"}, {P: 20000})
    assert empty_cluster.everything() == {frozenset({("user", "<default>")}): {P: 20000.0}}
    described = service.api("bob").get(
        "/quotas", params={"filter": "user:default", "strict": "true"}
    )
    assert described.json()["quotas"] == []


def test_c068_the_three_defaults_are_three_entities(
    service: RunningService, empty_cluster: RawQuotas
) -> None:
    wanted = [({"user": None, "client-id": None}, 8), ({"user": None}, 6), ({"client-id": None}, 4)]
    answer = service.alter(*(change(names, {P: value}) for names, value in wanted))
    assert [result["outcome"] for result in answer.json()["results"]] == ["applied"] * 3
    assert empty_cluster.everything() == {
        frozenset(names.items()): {P: float(value)} for names, value in wanted
    }
