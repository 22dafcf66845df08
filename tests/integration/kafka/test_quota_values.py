"""What a broker stores, seen through the adapter and the image of all quotas."""

import struct
from datetime import UTC, datetime

import pytest

from app.domain.alterations import Outcome
from app.domain.errors import InvalidRequestError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.queries.resolve import QuotaImage
from tests.testkit.fake_ports import no_callback
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


async def test_one_refused_entity_does_not_hold_back_the_others(quota_admin: KafkaClientQuotaAdmin):
    good, bad = entity(user=unique()), entity(user=unique())
    answer = await quota_admin.alter_client_quotas(
        [setting(bad, producer_byte_rate="-1"), setting(good, producer_byte_rate="1")],
        validate_only=False,
    )
    refused = answer.verdicts[bad]
    assert refused.outcome is Outcome.REFUSED
    assert refused.error is not None
    assert refused.error.kafka_error == "INVALID_REQUEST"
    assert "Quota producer_byte_rate must be greater than" in refused.error.message
    assert answer.verdicts[good].outcome is Outcome.APPLIED
    await eventually(lambda: values_of(quota_admin, good), {"producer_byte_rate": 1.0})
    assert await values_of(quota_admin, bad) == {}


async def test_what_the_protocol_cannot_say_is_refused_before_it_is_sent(
    quota_admin: KafkaClientQuotaAdmin,
):
    of = entity(user="\ud800")
    with pytest.raises(InvalidRequestError, match="cannot say"):
        await quota_admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=False
        )
    await quota_admin.cluster_id()


async def test_an_image_of_age_zero_shows_what_the_broker_shows_now(
    quota_admin: KafkaClientQuotaAdmin,
):
    image = QuotaImage(quota_admin, no_callback)
    before = datetime.now(UTC)
    first = await image.image(max_age_ms=0)
    of = entity(user=unique())
    await store(quota_admin, setting(of, producer_byte_rate=1))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 1.0})
    cached = await image.image(max_age_ms=60_000)
    assert cached is first
    assert of not in cached.quotas
    fresh = await image.image(max_age_ms=0)
    assert fresh.quotas[of] == {"producer_byte_rate": 1.0}
    assert before <= first.as_of <= fresh.as_of <= datetime.now(UTC)


async def test_what_has_not_changed_is_not_read_again(quota_admin: KafkaClientQuotaAdmin):
    of = entity(user=unique())
    await store(quota_admin, setting(of, producer_byte_rate=1))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 1.0})
    image = QuotaImage(quota_admin, no_callback)

    async def the_same() -> object:
        first, second = [await image.image(max_age_ms=0) for _ in range(2)]
        return first.quotas is second.quotas

    await eventually(the_same, True)
    await store(quota_admin, setting(of, producer_byte_rate=2))
    await eventually(lambda: values_of(quota_admin, of), {"producer_byte_rate": 2.0})
    changes = (await image.image(max_age_ms=0)).changes
    assert changes is not None
    assert changes.changed[of] == {"producer_byte_rate": 2.0}
