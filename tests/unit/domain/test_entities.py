"""Entities: equality, order, keys."""

from app.domain.entities import ClientQuotaEntity


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


def test_the_order_of_the_parts_does_not_matter() -> None:
    one = ClientQuotaEntity.of({"user": "a", "client-id": "b"})
    assert one == ClientQuotaEntity.of({"client-id": "b", "user": "a"})
    assert len({one, ClientQuotaEntity.of({"client-id": "b", "user": "a"})}) == 1
