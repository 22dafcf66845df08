"""Warnings about names that another tool uses for a default or a pattern."""

import pytest

from app.domain.entities import ClientQuotaEntity, entity_warnings, intended_entity, is_misleading

NO_ENTITY = None

Names = dict[str, str | None]


@pytest.mark.parametrize(
    ("names", "codes", "intended"),
    [
        ({"user": "User:alice"}, ["user-prefix"], {"user": "alice"}),
        ({"user": "User:CN=acme/mirror"}, ["user-prefix"], {"user": "CN=acme/mirror"}),
        ({"user": "User:*"}, ["user-prefix"], {"user": None}),
        ({"user": "User:"}, ["user-prefix"], NO_ENTITY),
        ({"user": "User:team-*"}, ["user-prefix"], NO_ENTITY),
        ({"user": "<default>"}, ["literal-default"], {"user": None}),
        ({"user": "<Default>"}, ["literal-default"], {"user": None}),
        ({"client-id": "*"}, ["literal-default"], {"client-id": None}),
        ({"client-id": ".*"}, ["literal-default"], {"client-id": None}),
        ({"client-id": "tenant-*"}, ["literal-pattern"], NO_ENTITY),
        ({"user": "^team-a"}, ["literal-pattern"], NO_ENTITY),
        ({"ip": "<default>"}, ["literal-default"], {"ip": None}),
        ({"user": "alice "}, ["literal-blank"], {"user": "alice"}),
        ({"client-id": "\u00a0etl\n"}, ["literal-blank"], {"client-id": "etl"}),
        ({"user": " User:alice"}, ["literal-blank"], {"user": "alice"}),
        ({"user": " "}, ["literal-blank"], NO_ENTITY),
        ({"user": " tenant-* "}, ["literal-pattern"], NO_ENTITY),
        (
            {"user": "*", "client-id": "User:x*"},
            ["literal-pattern", "literal-default"],
            NO_ENTITY,
        ),
        (
            {"user": "User:alice", "client-id": "<default>"},
            ["literal-default", "user-prefix"],
            {"user": "alice", "client-id": None},
        ),
        ({"user": None, "client-id": "*"}, ["literal-default"], {"user": None, "client-id": None}),
    ],
)
def test_a_name_that_kafka_takes_literally_has_a_warning(
    names: Names, codes: list[str], intended: Names | None
):
    entity = ClientQuotaEntity.of(names)
    assert [warning.code for warning in entity_warnings(entity)] == codes
    assert intended_entity(entity) == (intended and ClientQuotaEntity.of(intended))


@pytest.mark.parametrize(
    "names",
    [
        {"user": "alice"},
        {"user": None},
        {"client-id": "User:alice"},
        {"user": "CN=*.example.com,O=acme"},
        {"client-id": "<etl>"},
        {"user": "default"},
        {"user": "HOST$"},
        {"user": "two words"},
        {"ip": "10.0.0.1"},
    ],
)
def test_an_ordinary_name_has_none(names: Names):
    entity = ClientQuotaEntity.of(names)
    assert entity_warnings(entity) == ()
    assert intended_entity(entity) == entity
    assert not any(is_misleading(kind, name) for kind, name in names.items() if name)


def test_the_sentences_name_the_entity_and_say_where_the_default_is():
    sentences = {
        name: entity_warnings(ClientQuotaEntity.of({"user": name}))[0].detail
        for name in ("User:alice", "*", "tenant-*\x1b")
    }
    assert sentences == {
        "User:alice": (
            "A quota's user is the principal's name without its type: this is the principal "
            "'User:User:alice', and the user of 'User:alice' is 'alice'."
        ),
        "*": (
            "Kafka matches names literally: this is the user '*' alone, and not the default, "
            "which is {user=<default>}."
        ),
        "tenant-*\x1b": (
            "Kafka matches names literally and has no patterns: this is the user "
            "'tenant-*\\x1b' alone."
        ),
    }
