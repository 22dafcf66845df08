"""Request bodies: what is read, what cannot be read, what breaks a rule of the request."""

import json
from decimal import Decimal
from typing import Any, TypeVar

import pytest

from app.domain.alterations import Op
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import MAX_VIOLATIONS, UnreadableRequestError
from app.http.alterations.models import AlterationRequest
from app.http.resolve.routes import ResolveRequest
from app.http.validation import RequestBody, parse_object, validated
from app.service.ports.alterations import Wait
from app.service.queries.resolve import Identity

Body = TypeVar("Body", bound=RequestBody)


def read_body(model: type[Body], document: Any) -> Body:
    text = document if isinstance(document, str) else json.dumps(document)
    return validated(model, parse_object(text.encode()))


def alter(document: Any) -> AlterationRequest:
    return read_body(AlterationRequest, document)


def faults(model: type[RequestBody], document: Any) -> list[tuple[str, str]]:
    with pytest.raises(UnreadableRequestError) as caught:
        read_body(model, document)
    return sorted((violation.pointer, violation.code) for violation in caught.value.violations)


ALICE = {"entity": {"user": "alice"}, "ops": [{"key": "producer_byte_rate", "value": 1}]}


def test_an_alteration_is_read_whole():
    body = alter(
        """{"validate_only": true, "all_or_nothing": false, "wait": "all_brokers", "wait_ms": 1e3,
            "reason": "INC-4711", "alterations": [
            {"entity": {"user": "alice", "client-id": null},
             "ops": [{"key": "producer_byte_rate", "value": 9007199254740993},
                     {"key": "consumer_byte_rate", "remove": true}],
             "expected": {"producer_byte_rate": 0.10, "consumer_byte_rate": null,
                          "request_percentage": "Infinity"}},
            {"entity": {"ip": "10.0.0.1"}, "ops": []}]}"""
    )
    assert body.validate_only
    assert not body.all_or_nothing
    assert body.asked["wait"] is Wait.ALL_BROKERS
    assert body.asked["wait_ms"] == 1000
    assert body.reason == "INC-4711"
    assert body.violations == ()
    first, second = body.changes
    assert first.entity == ClientQuotaEntity.of({"client-id": None, "user": "alice"})
    assert first.ops == (
        Op("producer_byte_rate", Decimal(9007199254740993)),
        Op("consumer_byte_rate", remove=True),
    )
    assert second.ops == ()
    assert first.expected == {
        "producer_byte_rate": Decimal("0.10"),
        "consumer_byte_rate": None,
        "request_percentage": float("inf"),
    }
    assert second.expected == {}


def test_missing_fields_have_their_defaults():
    empty = alter({})
    assert (empty.changes, empty.violations) == ((), ())
    body = alter({"alterations": [ALICE], "reason": None})
    assert (body.asked["wait"], body.asked["wait_ms"]) == (Wait.READABLE, 5000)
    assert (body.validate_only, body.all_or_nothing, body.reason) == (False, True, None)


def test_an_op_with_both_or_neither_of_value_and_remove_is_left_to_the_rules():
    ops = [{"key": "a"}, {"key": "a", "value": 1, "remove": True}, {"key": "", "remove": False}]
    (read,) = alter({"alterations": [{"entity": {}, "ops": ops}]}).changes
    assert read.ops == (Op("a"), Op("a", Decimal(1), remove=True), Op(""))


def test_a_name_that_is_no_unicode_hides_no_other_fault():
    document = {
        "alterations": [
            {"entity": {"user": 1}, "ops": [{"\ud800": 1, "key": 2}], "a\udfff": 1, "b\udfff": 2},
            {"entity": {}, "ops": 3, "expected": {"k": True}},
        ],
        "reason": 4,
        "\ud800": 5,
        "unknown": 6,
    }
    assert sorted(faults(AlterationRequest, document)) == sorted(
        [
            ("/\ud800", "unknown-field"),
            ("/unknown", "unknown-field"),
            ("/reason", "wrong-type"),
            ("/alterations/0/a\udfff", "unknown-field"),
            ("/alterations/0/b\udfff", "unknown-field"),
            ("/alterations/0/entity/user", "wrong-type"),
            ("/alterations/0/ops/0/\ud800", "unknown-field"),
            ("/alterations/0/ops/0/key", "wrong-type"),
            ("/alterations/1/ops", "wrong-type"),
            ("/alterations/1/expected/k", "wrong-type"),
        ]
    )


def test_very_many_names_that_are_no_unicode_end_where_the_list_of_faults_does():
    document = {"alterations": [{"entity": {}, "ops": [], "\ud800": 1}] * 5000, "reason": 1}
    document |= {f"\ud800{number}": 1 for number in range(5000)}
    assert len(faults(AlterationRequest, document)) == MAX_VIOLATIONS + 1


def test_a_waiting_time_is_whole_however_it_is_written(subtests: pytest.Subtests):
    for text, wait_ms in [("0", 0), ("-0.0", 0), ("6e4", 60000), ("7.0", 7)]:
        with subtests.test(text=text):
            body = alter(f'{{"wait_ms": {text}}}')
            assert (body.asked["wait_ms"], body.violations) == (wait_ms, ())


def test_a_thousand_characters_and_ten_thousand_identities_break_no_rule():
    assert alter({"reason": "\N{GRINNING FACE}" * 1000}).violations == ()
    assert read_body(ResolveRequest, {"identities": [{"user": "a"}] * 10_000}).violations == ()


def test_identities_are_read_in_order():
    body = read_body(
        ResolveRequest,
        {"identities": [{"user": "a", "client-id": ""}, {"user": ""}, {"ip": "::1"}]},
    )
    assert body.query().identities == (Identity("a", ""), Identity(""), Identity(ip="::1"))
    assert (body.query().alterations, body.query().max_age_ms, body.violations) == (None, 5000, ())


def test_an_empty_list_of_alterations_is_not_a_missing_list():
    body = read_body(ResolveRequest, {"identities": [], "alterations": [], "max_age_ms": 0})
    assert (body.query().alterations, body.query().max_age_ms) == ((), 0)


def test_a_what_if_reads_alterations_with_their_expectations():
    document = {"identities": [{"user": "a"}], "alterations": [ALICE]}
    (alteration,) = read_body(ResolveRequest, document).changes
    assert alteration.ops == (Op("producer_byte_rate", Decimal(1)),)
    document = {"identities": [], "alterations": [{**ALICE, "expected": {"k": None}}, ALICE]}
    assert read_body(ResolveRequest, document).query().expected == {0: {"k": None}, 1: {}}
