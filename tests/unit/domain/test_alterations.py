"""An alteration: judged before anything is sent, reverted, and observed by recovery."""

import math
from decimal import Decimal

import pytest

from app.domain.alterations import (
    ClientQuotaAlteration,
    Observation,
    Op,
    Outcome,
    Quotas,
    exact_float,
    inverse,
    observe,
)
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import MAX_VIOLATIONS
from app.domain.validation import MAX_CHANGES, judge

ALICE = {"user": "alice"}


def alteration(entity: dict[str, str | None], *ops: Op) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(ClientQuotaEntity.of(entity), ops)


def setting(key: str, value: str) -> Op:
    return Op(key, Decimal(value))


def codes(*alterations: ClientQuotaAlteration, stored: Quotas | None = None) -> list[str]:
    return [violation.code for violation in judge(alterations, stored or {}).violations]


ACCEPTED = {
    "producer_byte_rate": "1 1048576.0 1e6",
    "consumer_byte_rate": "9223372036854775807 9223372036854775808 9223372036854776000 "
    "9.223372036854776e18",
    "request_percentage": "0.01 12.3 1e9",
    "controller_mutation_rate": "0.5",
    "connection_creation_rate": "1 2147483647",
}


def test_a_value_within_its_bounds_is_accepted(subtests: pytest.Subtests) -> None:
    for key, values in ACCEPTED.items():
        entity = {"ip": "10.0.0.1"} if key == "connection_creation_rate" else ALICE
        for value in values.split():
            with subtests.test(key=key, value=value):
                assert codes(alteration(entity, setting(key, value))) == []


def test_an_unusual_name_is_an_ordinary_name(subtests: pytest.Subtests) -> None:
    for entity in [
        {"user": None},
        {"user": "<default>"},
        {"user": "é" * 256},
        {"user": " "},
        {"user": "line\nbreak", "client-id": "a,b"},
        {"client-id": None},
    ]:
        with subtests.test(entity=entity):
            assert codes(alteration(entity, setting("producer_byte_rate", "5"))) == []


def test_every_violation_of_a_request_is_listed_with_its_pointer() -> None:
    judgement = judge(
        [
            alteration({"user": ""}, setting("producer_byte_rate", "0"), Op("bad")),
            alteration({"ip": "1.2.3.4"}, Op("producer_byte_rate", Decimal(5), remove=True)),
            alteration({"ip": ""}),
        ],
        {},
    )
    assert [
        (violation.pointer, violation.code, violation.index) for violation in judgement.violations
    ] == [
        ("/alterations/0/entity/user", "empty-name", 0),
        ("/alterations/0/ops/0/value", "not-positive", 0),
        ("/alterations/0/ops/1", "value-or-remove-missing", 0),
        ("/alterations/0/ops/1/key", "unknown-key", 0),
        ("/alterations/1/ops/0", "value-with-remove", 1),
        ("/alterations/1/ops/0/key", "key-not-allowed", 1),
        ("/alterations/2/entity/ip", "empty-name", 2),
        ("/alterations/2/ops", "no-ops", 2),
    ]


def test_an_address_is_sent_in_its_canonical_text() -> None:
    op = setting("connection_creation_rate", "5")
    sent = judge([alteration({"ip": "::ffff:10.0.0.1"}, op)], {}).alterations
    assert sent[0].entity == ClientQuotaEntity.of({"ip": "10.0.0.1"})


def test_what_is_stored_may_be_removed_however_odd_its_name_is() -> None:
    stored = {
        ClientQuotaEntity.of({"ip": "host.example"}): {"connection_creation_rate": 5.0},
        ClientQuotaEntity.of({"ip": "0:0:0:0:0:0:0:1"}): {"connection_creation_rate": 5.0},
        ClientQuotaEntity.of({"user": "x" * 600}): {"old.key": 5.0},
    }
    request = [
        alteration({"ip": "host.example"}, Op("connection_creation_rate", remove=True)),
        alteration({"ip": "0:0:0:0:0:0:0:1"}, Op("connection_creation_rate", remove=True)),
        alteration({"user": "x" * 600}, Op("old.key", remove=True)),
    ]
    assert all(judge([item], {}).needs_stored for item in request)
    judgement = judge(request, stored)
    assert judgement.violations == ()
    assert [item.entity for item in judgement.alterations] == list(stored)


def test_an_odd_name_that_is_stored_cannot_be_set() -> None:
    stored = {ClientQuotaEntity.of({"ip": "host.example"}): {"connection_creation_rate": 5.0}}
    request = alteration({"ip": "host.example"}, setting("connection_creation_rate", "6"))
    assert codes(request, stored=stored) == ["not-an-ip-address"]


def test_only_changed_keys_count_against_the_controllers_limit() -> None:
    many = [
        alteration({"user": f"u{number}"}, setting("producer_byte_rate", "5"))
        for number in range(MAX_CHANGES + 1)
    ]
    assert codes(*many) == ["too-many-changes"]
    stored = {ClientQuotaEntity.of({"user": "u7"}): {"producer_byte_rate": 5.0}}
    assert codes(*many, stored=stored) == []


def test_records_of_more_than_two_mebibytes_are_refused() -> None:
    ops = (setting("producer_byte_rate", "5"), setting("consumer_byte_rate", "5"))
    many = [alteration({"user": f"{number:0512}"}, *ops) for number in range(2000)]
    assert codes(*many) == ["too-large"]


def test_an_integer_is_taken_exactly_or_not_at_all(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("9223372036854775807", float(2**63)),
        ("9223372036854775808", float(2**63)),
        ("9223372036854776000", float(2**63)),
        ("9.223372036854776e18", float(2**63)),
        ("9007199254740993", None),
        ("0.1", 0.1),
        ("1e999", float("inf")),
    ]:
        with subtests.test(text=text):
            assert exact_float(Decimal(text)) == expected


ALICE_ENTITY = ClientQuotaEntity.of({"user": "alice"})
P = "producer_byte_rate"


@pytest.mark.parametrize(("stored", "written"), [(math.nan, "NaN"), (math.inf, "Infinity")])
def test_what_other_tools_stored_cannot_be_restored_and_is_named_as_elsewhere(
    stored: float, written: str
):
    with pytest.raises(ValueError, match=f"^{P} was {written} before, which"):
        inverse(ALICE_ENTITY, {P: stored}, {P: 5.0})


def test_past_a_thousand_violations_each_refused_entity_still_has_a_violation():
    ops = tuple(Op("bad-key", None) for _ in range(10))
    many = [
        ClientQuotaAlteration(ClientQuotaEntity.of({"user": str(n)}), ops) for n in range(5_000)
    ]
    violations = judge(many, {}).violations
    refused = {violation.index for violation in violations if violation.index is not None}
    assert refused == set(range(5_000))
    assert len(violations) < MAX_VIOLATIONS + 5_100


C, R = "consumer_byte_rate", "request_percentage"
ALTERATION = ClientQuotaAlteration(ALICE_ENTITY, (Op(P, Decimal(5)), Op(C, remove=True)))
BEFORE = {P: 3.0, C: 7.0}


def test_all_keys_that_it_names_decide_and_no_others(subtests: pytest.Subtests):
    for seen, outcome in [
        ({P: 5.0}, Outcome.APPLIED),
        ({P: 5.0, R: 1.0}, Outcome.APPLIED),
        (BEFORE, Outcome.NOT_APPLIED),
        ({**BEFORE, R: 1.0}, Outcome.NOT_APPLIED),
        ({P: 5.0, C: 7.0}, Outcome.OBSERVED_OTHER),
        ({P: 3.0}, Outcome.OBSERVED_OTHER),
        ({P: 5.0, C: 8.0}, Outcome.OBSERVED_OTHER),
        ({}, Outcome.OBSERVED_OTHER),
    ]:
        with subtests.test(seen=seen, outcome=outcome):
            assert observe(ALTERATION, BEFORE, seen) == Observation(outcome)


def test_what_held_before_is_indistinguishable_only_if_all_of_it_did():
    assert observe(ALTERATION, {P: 5.0}, {P: 5.0}) == Observation(Outcome.APPLIED, True)
    assert observe(ALTERATION, {P: 5.0, C: 7.0}, {P: 5.0}) == Observation(Outcome.APPLIED, False)


def test_where_nobody_knows_what_held_before_nothing_is_found_not_applied():
    assert observe(ALTERATION, None, {P: 5.0}) == Observation(Outcome.APPLIED, True)
    for seen in ({}, BEFORE, {P: 4.0}):
        assert observe(ALTERATION, None, seen) == Observation(Outcome.OBSERVED_OTHER)
