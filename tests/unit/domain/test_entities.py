"""Entities: equality, order, keys."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity

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
