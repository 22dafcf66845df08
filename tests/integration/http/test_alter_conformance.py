"""The numbered alter cases that are refused; the raw protocol tells what a broker does."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.http.refused_alterations import (
    INVALID_REQUEST,
    OK,
    POLICY_VIOLATION,
    REFUSED,
    alteration_text,
    made_unique,
)
from tests.integration.http.service_calls import C, I, P, R, change
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Entry, RawQuotas, RequestLog, setting
from tests.testkit.service import RunningService


def post(service: RunningService, *alterations: str, **options: Any) -> httpx.Response:
    members = "".join(f', "{name}": {json.dumps(value)}' for name, value in options.items())
    return service.api().post(
        "/quotas/alterations",
        content=f'{{"alterations": [{", ".join(alterations)}]{members}}}',
        headers={"Content-Type": "application/json"},
    )


def test_a_broken_rule_is_reported_and_nothing_reaches_the_broker(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog, subtests: pytest.Subtests
) -> None:
    for name, case in REFUSED.items():
        with subtests.test(name):
            names = made_unique(case.names)
            alteration = alteration_text(names, list(case.values.items()))
            with broker_log.nothing_arrives():
                answers = [post(service, alteration, validate_only=flag) for flag in (True, False)]
                answers.append(post(service, alteration, all_or_nothing=False))
            code, message = case.broker
            is_checked_by_kafka = code == INVALID_REQUEST or "not-an-ip-address" in case.codes
            kafka_error = "INVALID_REQUEST" if is_checked_by_kafka else None
            for answer in answers:
                problem = answer.json()
                assert (answer.status_code, problem["sent_to_cluster"]) == (422, "no")
                assert {error["code"] for error in problem["errors"]} == case.codes
                assert problem["kafka_error"] == kafka_error
            (verdict,) = raw.alter(
                setting(names, {key: float(text) for key, text in case.values.items()}),
                validate_only=True,
            )
            assert verdict.code == code
            assert message in (verdict.message or "")
            assert raw.everything().get(frozenset(names.items())) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [("NaN", "not-json"), ("Infinity", "not-json"), ('"Infinity"', "wrong-type")],
    ids=["C028 NaN", "C025 C026 Infinity", "C026 Infinity as text"],
)
def test_what_json_has_no_number_for_cannot_be_set(
    service: RunningService, broker_log: RequestLog, text: str, code: str
) -> None:
    with broker_log.nothing_arrives():
        answer = post(service, alteration_text({"user": unique()}, [(R, text)]))
    assert answer.status_code == 400
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [
        ("/alterations/0/ops/0/value", code)
    ]


def test_c053_a_key_twice_refuses_the_entity(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    names = {"user": unique()}
    with broker_log.nothing_arrives():
        answer = post(service, alteration_text(names, [(P, "1000"), (P, "2000")]))
    assert answer.status_code == 422
    assert {error["code"] for error in answer.json()["errors"]} == {"duplicate-key"}
    (verdict,) = raw.alter(Entry(list(names.items()), [(P, 1000.0), (P, 2000.0)]))
    assert verdict.code == INVALID_REQUEST
    assert (verdict.message or "").startswith("Ignoring duplicate entity")
    assert raw.stored(names) == {}


@pytest.mark.parametrize(
    ("first", "stored_by_kafka"), [(1000, {P: 1000.0}), (-1, {})], ids=["C055", "C056"]
)
@pytest.mark.parametrize("all_or_nothing", [True, False])
def test_c055_c056_an_entity_twice_refuses_the_request_and_stores_nothing(
    service: RunningService,
    raw: RawQuotas,
    broker_log: RequestLog,
    first: float,
    stored_by_kafka: dict[str, float],
    *,
    all_or_nothing: bool,
) -> None:
    names, bystander = {"user": unique()}, {"user": unique()}
    with broker_log.nothing_arrives():
        answer = service.alter(
            change(names, {P: first}),
            change(names, {C: 2000}),
            change(bystander, {C: 1}),
            all_or_nothing=all_or_nothing,
        )
    assert answer.status_code == 422
    errors = {error["pointer"]: error["code"] for error in answer.json()["errors"]}
    assert errors["/alterations/1/entity"] == "duplicate-entity"
    assert raw.stored(names) == raw.stored(bystander) == {}
    (verdict,) = raw.alter(setting(names, {P: first}), setting(names, {C: 2000}))
    assert verdict.code == INVALID_REQUEST
    wait_until(lambda: raw.stored(names) == stored_by_kafka)


def test_one_address_in_two_spellings_is_one_entity(
    service: RunningService, broker_log: RequestLog
) -> None:
    with broker_log.nothing_arrives():
        answer = service.alter(
            change({"ip": "2001:db8::5"}, {I: 5}), change({"ip": "2001:DB8:0::5"}, {I: 6})
        )
    assert answer.status_code == 422
    assert [error["code"] for error in answer.json()["errors"]] == ["duplicate-entity"]


def test_c059_a_request_without_entries_is_refused_although_kafka_answers_success(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    with broker_log.nothing_arrives():
        answers = [
            service.alter(),
            service.alter(validate_only=True),
            service.api().post("/quotas/alterations", json={}),
        ]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {
        (422, "no-alterations")
    }
    assert raw.alter() == []


def test_c067_a_type_twice_in_an_entity_cannot_be_read_where_kafka_takes_the_last(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    first, last = unique("a"), unique("b")
    entity = f'{{"user": "{first}", "user": "{last}"}}'
    with broker_log.nothing_arrives():
        answer = post(service, f'{{"entity": {entity}, "ops": [{{"key": "{P}", "value": 5}}]}}')
    assert answer.status_code == 400
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [
        ("/alterations/0/entity/user", "duplicate-json-key")
    ]
    (verdict,) = raw.alter(Entry([("user", first), ("user", last)], [(P, 5.0)]))
    assert (verdict.entity, verdict.code) == (frozenset({("user", last)}), OK)


@pytest.fixture
def user(raw: RawQuotas) -> Iterator[str]:
    """A user that leaves nothing behind."""
    name = unique()
    yield name
    stored = raw.describe(("user", 0, name)).quotas
    raw.alter(*(setting(dict(key), dict.fromkeys(values)) for key, values in stored.items()))


def test_c061_c062_ten_thousand_changed_keys_go_at_once_and_one_more_is_refused(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog, user: str
) -> None:
    changes = [change({"user": user, "client-id": str(n)}, {P: 5}) for n in range(10_001)]
    with broker_log.nothing_arrives():
        refused = service.alter(*changes)
    assert (refused.status_code, refused.json()["code"]) == (422, "too-many-changes")
    assert refused.json()["kafka_error"] == "POLICY_VIOLATION"
    verdicts = raw.alter(
        *(setting(item["entity"], {P: 5.0}) for item in changes), validate_only=True
    )
    assert {verdict.code for verdict in verdicts} == {POLICY_VIOLATION}

    answer = service.alter(*changes[:-1])
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["entity"] for result in results] == [item["entity"] for item in changes[:-1]]
    assert {result["outcome"] for result in results} == {"applied"}
    assert len(raw.describe(("user", 0, user)).quotas) == 10_000


def test_two_mebibytes_of_records_are_refused_unsent(
    service: RunningService, broker_log: RequestLog
) -> None:
    long = unique() + "x" * 490
    changes = [change({"user": long, "client-id": f"{n:04}{long}"}, {P: 5}) for n in range(2000)]
    with broker_log.nothing_arrives():
        answer = service.alter(*changes)
    assert (answer.status_code, answer.json()["code"]) == (422, "too-large")
