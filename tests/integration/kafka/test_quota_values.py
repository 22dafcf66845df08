"""What a broker stores and refuses, seen through the adapter."""

import struct

import pytest

from app.domain.errors import InvalidRequestError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.testkit.kafka import entity, eventually, setting, store, unique, values_of


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", "NaN"),
        ("request_percentage", "Infinity"),
        ("controller_mutation_rate", "Infinity"),
        ("consumer_byte_rate", "1235.0000001"),
        ("producer_byte_rate", "9223372036854775808"),
        ("producer_byte_rate", "9007199254740993"),
        ("producer_byte_rate", "1e-9"),
        ("request_percentage", "4.9e-324"),
        ("request_percentage", "12.3"),
    ],
)
async def test_a_stored_value_comes_back_bit_for_bit(
    quota_admin: KafkaClientQuotaAdmin, key: str, value: str
):
    of = entity(user=unique())
    await store(quota_admin, setting(of, **{key: value}))

    async def bits() -> object:
        stored = await values_of(quota_admin, of)
        return {name: struct.pack(">d", number) for name, number in stored.items()}

    await eventually(bits, {key: struct.pack(">d", float(value))})


@pytest.mark.parametrize(
    "name",
    [
        "<default>",
        "O=A client,CN=localhost",
        "two\nlines",
        " ",
        "+1",
        "=1+1",
        "e\u0301 is not \u00e9",
        "\U0001f600",
        "x" * 500,
        "\u00fc" * 250,
        "null",
    ],
)
async def test_a_name_comes_back_as_it_was_written(quota_admin: KafkaClientQuotaAdmin, name: str):
    of = entity(user=name, client_id=name)
    await store(quota_admin, setting(of, producer_byte_rate=5))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 5.0})
    assert await values_of(quota_admin, entity(user=None, client_id=name)) == {}
    await store(quota_admin, setting(of, producer_byte_rate=None))


async def test_what_the_protocol_cannot_say_is_refused_before_it_is_sent(
    quota_admin: KafkaClientQuotaAdmin,
):
    of = entity(user="\ud800")
    with pytest.raises(InvalidRequestError, match="cannot say"):
        await quota_admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=False
        )
    await quota_admin.cluster_id()
