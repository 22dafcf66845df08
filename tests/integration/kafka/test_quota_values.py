"""What a broker stores and refuses, seen through the adapter."""

import struct

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
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


@pytest.mark.parametrize(
    ("names", "key", "value", "text"),
    [
        ({"user": "u"}, "producer_byte_rate", "0", "Quota producer_byte_rate must be greater than"),
        ({"user": "u"}, "consumer_byte_rate", "2.245", "cannot be a fractional value"),
        ({"user": "u"}, "producer_byte_rate", "Infinity", "too large for a LONG"),
        ({"user": "u"}, "bad", "1", "Invalid configuration key bad"),
        ({"user": ""}, "request_percentage", "1", "Empty user not supported"),
        ({}, "request_percentage", "1", "Invalid empty client quota entity"),
        ({"USER": "u"}, "request_percentage", "1", "Unhandled client quota entity type: USER"),
        ({"ip": "10.0.0.0/8"}, "connection_creation_rate", "5", "not a valid IP"),
        ({"ip": "1.2.3.4", "user": "u"}, "request_percentage", "1", "Invalid quota entity comb"),
    ],
)
async def test_a_refusal_has_kafka_s_name_and_the_broker_s_words(
    quota_admin: KafkaClientQuotaAdmin, names: dict[str, str], key: str, value: str, text: str
):
    of = ClientQuotaEntity.of(names)
    for validate_only in (True, False):
        answer = await quota_admin.alter_client_quotas(
            [setting(of, **{key: value})], validate_only=validate_only
        )
        verdict = answer.verdicts[of]
        assert verdict.outcome is Outcome.REFUSED
        assert verdict.error is not None
        assert verdict.error.kafka_error == "INVALID_REQUEST"
        assert text in verdict.error.message


async def test_one_refused_entity_does_not_hold_back_the_others(quota_admin: KafkaClientQuotaAdmin):
    good, bad = entity(user=unique()), entity(user=unique())
    answer = await quota_admin.alter_client_quotas(
        [setting(bad, producer_byte_rate="-1"), setting(good, producer_byte_rate="1")],
        validate_only=False,
    )
    assert answer.verdicts[bad].outcome is Outcome.REFUSED
    assert answer.verdicts[good].outcome is Outcome.APPLIED
    await eventually(lambda: values_of(quota_admin, good), {"producer_byte_rate": 1.0})
    assert await values_of(quota_admin, bad) == {}


@pytest.mark.parametrize(
    ("components", "kafka_error", "text"),
    [
        ([("User", "u")], "UNSUPPORTED_VERSION", "Unsupported entity type User"),
        ([("", "u")], "INVALID_REQUEST", "Invalid empty entity type."),
        ([("user", "u"), ("user", None)], "INVALID_REQUEST", "cannot appear more than once"),
        ([("user", "u"), ("ip", None)], "INVALID_REQUEST", "should not be used with user"),
    ],
)
async def test_a_filter_that_the_broker_refuses_is_an_invalid_request(
    quota_admin: KafkaClientQuotaAdmin,
    components: list[tuple[str, str | None]],
    kafka_error: str,
    text: str,
):
    quota_filter = ClientQuotaFilter(
        tuple(
            ClientQuotaFilterComponent.of_default_entity(kind)
            if name is None
            else ClientQuotaFilterComponent.of_entity(kind, name)
            for kind, name in components
        )
    )
    with pytest.raises(InvalidRequestError, match=text) as caught:
        await quota_admin.describe_client_quotas(quota_filter)
    assert caught.value.kafka_error == kafka_error


async def test_what_the_protocol_cannot_say_is_refused_before_it_is_sent(
    quota_admin: KafkaClientQuotaAdmin,
):
    of = entity(user="\ud800")
    with pytest.raises(InvalidRequestError, match="cannot say"):
        await quota_admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=False
        )
    await quota_admin.cluster_id()
