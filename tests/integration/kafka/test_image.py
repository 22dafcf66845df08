"""The image of all quotas, over a real broker."""

from datetime import UTC, datetime

from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.queries.resolve import QuotaImage
from tests.testkit.fake_ports import no_callback
from tests.testkit.kafka import entity, eventually, setting, store, unique, values_of


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
