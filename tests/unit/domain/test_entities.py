"""Entities: equality, order, keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity

entities = st.dictionaries(
    st.sampled_from(["user", "client-id", "ip"]), st.none() | st.text(), min_size=1
).map(ClientQuotaEntity.of)


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


@given(entities)
def test_an_entity_is_read_back_from_its_key(entity: ClientQuotaEntity) -> None:
    assert ClientQuotaEntity.from_key(entity.key) == entity


@pytest.mark.parametrize("text", ["", "é", "****", "bnVsbA", "WzFd", "eyJ1c2VyIjoxfQ"])
def test_what_is_no_entity_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an entity key"):
        ClientQuotaEntity.from_key(text)


def test_the_order_of_the_parts_does_not_matter() -> None:
    one = ClientQuotaEntity.of({"user": "a", "client-id": "b"})
    assert one == ClientQuotaEntity.of({"client-id": "b", "user": "a"})
    assert len({one, ClientQuotaEntity.of({"client-id": "b", "user": "a"})}) == 1
