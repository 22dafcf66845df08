"""Entities: equality, order, keys; which of them a filter matches, and which a broker refuses."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.entities import (
    ANY_TYPE,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.domain.validation import filter_violations
from tests.testkit.resolution_cases import describe_fixture

ALICE = ClientQuotaEntity.of({"user": "ali???"}).key


def test_entities_are_sorted_absent_before_default_before_names_by_code_point() -> None:
    in_order = [
        {"ip": None},
        {"ip": "10.0.0.1"},
        {"client-id": None},
        {"client-id": "a"},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": "a"},
        {"user": "Z"},
        {"user": "a"},
        {"user": "a", "client-id": None},
        {"user": "\uffee"},
        {"user": "\U00010000"},
    ]
    expected = [ClientQuotaEntity.of(item) for item in in_order]
    assert sorted(set(expected), key=ClientQuotaEntity.sort_key) == expected


def test_the_entity_key_is_the_canonical_json_in_unpadded_base64() -> None:
    entity = ClientQuotaEntity.of({"user": "alice", "client-id": None})
    assert entity.canonical_json() == '{"client-id":null,"user":"alice"}'
    assert entity.key == "eyJjbGllbnQtaWQiOm51bGwsInVzZXIiOiJhbGljZSJ9"


@given(st.dictionaries(st.text(), st.none() | st.text()))
def test_a_key_names_its_entity(names: dict[str, str | None]) -> None:
    entity = ClientQuotaEntity.of(names)
    assert ClientQuotaEntity.from_key(entity.key) == entity


def key_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def test_what_is_not_the_one_key_of_an_entity_is_refused(subtests: pytest.Subtests) -> None:
    for key in [
        "",
        "alice",
        "ä",
        "e30=",
        "e31",
        f"{ALICE}A",
        ALICE.replace("_", "/"),
        key_of('{"user": "alice"}'),
        key_of('{"user":"alice","client-id":null}'),
        key_of('{"user":"alice","user":"alice"}'),
        key_of('{"user":"\\u0061lice"}'),
        key_of('{"user":"\ud800"}'),
        key_of('{"user":1}'),
        key_of('["user"]'),
        key_of("null"),
        key_of("[" * 100_000),
    ]:
        with subtests.test(key=key), pytest.raises(ValueError, match="entity_key"):
            ClientQuotaEntity.from_key(key)


def test_the_order_of_the_names_does_not_matter() -> None:
    entity = ClientQuotaEntity.of({"user": "a", "client-id": "b"})
    assert entity == ClientQuotaEntity.of({"client-id": "b", "user": "a"})
    assert len({entity, ClientQuotaEntity.of({"client-id": "b", "user": "a"})}) == 1


exact = ClientQuotaFilterComponent.of_entity
default = ClientQuotaFilterComponent.of_default_entity
specified = ClientQuotaFilterComponent.of_entity_type


def prefix(kind: str, text: str) -> ClientQuotaFilterComponent:
    return ClientQuotaFilterComponent(kind, MatchType.PREFIX, text)


def contains(kind: str, text: str) -> ClientQuotaFilterComponent:
    return ClientQuotaFilterComponent(kind, MatchType.CONTAINS, text)


def any_contains(text: str) -> ClientQuotaFilterComponent:
    return ClientQuotaFilterComponent(ANY_TYPE, MatchType.CONTAINS, text)


def absent(kind: str) -> ClientQuotaFilterComponent:
    return ClientQuotaFilterComponent(kind, MatchType.ABSENT)


CASES = [
    ("C070", [exact("user", "user-1"), exact("client-id", "client-id-2")], True, 0),
    ("C071", [exact("user", "user-2"), default("client-id")], True, 0),
    ("C073", [exact("client-id", "client-id-1")], True, 0),
    ("C074", [exact("user", "user-1")], False, 3),
    ("C076", [exact("client-id", "client-id-2")], False, 2),
    ("C077", [default("user")], False, 2),
    ("C079", [specified("user")], True, 4),
    ("C080", [specified("user")], False, 10),
    ("C082", [specified("client-id")], False, 7),
    ("C083", [specified("ip")], False, 2),
    ("C085", [], True, 0),
    ("C086", [specified("user"), specified("client-id")], True, 6),
    ("C088", [specified("user"), default("client-id")], True, 2),
    ("C089", [default("user"), specified("client-id")], True, 1),
    ("C091", [default("ip")], False, 0),
    ("C092", [exact("user", "")], False, 0),
    ("everything", [], False, 13),
    ("prefix-skips-the-default", [prefix("user", "")], False, 8),
    ("prefix", [prefix("user", "user-1")], False, 3),
    ("prefix-strict", [prefix("user", "user-")], True, 3),
    ("a-text-in-any-case", [contains("user", "ER-1")], False, 3),
    ("a-text-skips-the-default", [contains("user", "")], False, 8),
    ("some-name-in-any-case", [any_contains("ID-1")], False, 3),
    ("some-name-of-each", [any_contains("user-"), any_contains("ID-2")], False, 1),
    ("some-name-beside-a-type", [specified("user"), any_contains("ID-2")], False, 1),
    ("some-name-beside-an-address", [specified("ip"), any_contains("2.3")], False, 2),
    ("some-name-skips-the-default", [any_contains("")], False, 12),
    ("some-name-is-no-type-for-strict", [specified("user"), any_contains("user-1")], True, 1),
    ("only-some-name-strict", [any_contains("user")], True, 0),
    ("absent", [absent("client-id")], False, 6),
    ("absent-beside-user", [specified("user"), absent("client-id")], False, 4),
    ("absent-is-no-type-for-strict", [specified("user"), absent("client-id")], True, 4),
    ("only-absent-strict", [absent("user")], True, 0),
]


def test_a_component_is_written_as_it_is_read() -> None:
    components = [
        exact("user", "a"),
        default("user"),
        specified("ip"),
        prefix("user", "a-"),
        contains("client-id", "b"),
        absent("ip"),
        any_contains("c"),
    ]
    written = [
        "user=a",
        "user:default",
        "ip:any",
        "user^=a-",
        "client-id~=b",
        "ip:absent",
        "any~=c",
    ]
    assert list(map(str, components)) == written


def test_a_filter_matches_as_the_broker_does(subtests: pytest.Subtests) -> None:
    for components, strict, count in [case[1:] for case in CASES]:
        with subtests.test(strict=strict, count=count):
            quota_filter = ClientQuotaFilter(tuple(components), strict)
            matching = [entity for entity in describe_fixture() if quota_filter.matches(entity)]
            assert len(matching) == count
            wider = quota_filter.for_broker()
            assert all(wider.matches(entity) for entity in matching)
            assert {component.match_type for component in wider.components} <= {
                MatchType.EXACT,
                MatchType.DEFAULT,
                MatchType.SPECIFIED,
            }


def test_absent_repeats_a_type_and_combines_with_any() -> None:
    repeated = ClientQuotaFilter((exact("user", "a"), absent("user")))
    assert [violation.code for violation in filter_violations(repeated)] == ["repeated-entity-type"]
    assert filter_violations(ClientQuotaFilter((specified("ip"), absent("user")))) == []


def test_a_text_in_some_name_repeats_and_combines_with_any() -> None:
    twice = ClientQuotaFilter((any_contains("a"), any_contains("b"), exact("ip", "10.0.0.1")))
    assert filter_violations(twice) == []


@pytest.mark.parametrize("match_type", [each for each in MatchType if each != MatchType.CONTAINS])
def test_any_type_is_searched_and_nothing_else(match_type: MatchType) -> None:
    component = ClientQuotaFilterComponent(ANY_TYPE, match_type, "a")
    (violation,) = filter_violations(ClientQuotaFilter((component,)))
    assert (violation.code, violation.kafka_error) == ("unknown-entity-type", "UNSUPPORTED_VERSION")
    assert "any~=TEXT" in violation.detail


def test_the_literal_text_default_is_not_the_default_entity() -> None:
    literal = ClientQuotaEntity.of({"user": "<default>"})
    assert not default("user").matches(literal)
    assert exact("user", "<default>").matches(literal)
    assert prefix("user", "<").matches(literal)
