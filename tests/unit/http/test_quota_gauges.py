"""The stored limits as gauges: names, defaults, tags, and what is left out."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.domain.entities import ClientQuotaEntity
from tests.unit.http.fake_service import FakeService

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
Sample = tuple[str, dict[str, str], float]


def store(service: FakeService, names: dict[str, str | None], **values: float) -> None:
    service.brokers.quotas[ClientQuotaEntity.of(names)] = values


async def scrape(service: FakeService, query: str = "") -> list[Sample]:
    answer = await service.get(f"/metrics/quotas{query}")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.body.decode())
    return [
        (sample.name, sample.labels, sample.value)
        for family in families
        for sample in family.samples
    ]


def limit(value: float, key: str = PRODUCER, **labels: str) -> Sample:
    named = {
        **dict.fromkeys(("user", "client_id", "ip"), ""),
        **dict.fromkeys(("user_default", "client_id_default", "ip_default"), "false"),
    }
    return "kafka_client_quota_limit", {"key": key, **named, **labels}, value


def left_out(number: int) -> Sample:
    return "kafka_client_quota_limits_left_out", {}, float(number)


async def test_each_stored_value_is_a_gauge(service: FakeService):
    store(service, {"user": "alice"}, producer_byte_rate=2.0**63, consumer_byte_rate=0.5)
    store(service, {"user": "alice", "client-id": None}, producer_byte_rate=3.0)
    store(service, {"user": None, "client-id": "etl"}, producer_byte_rate=4.0)
    store(service, {"ip": None}, connection_creation_rate=5.0)
    store(service, {"ip": "10.0.0.1"}, connection_creation_rate=6.0)
    ips = "connection_creation_rate"
    expected = [
        limit(2.0**63, user="alice"),
        limit(0.5, CONSUMER, user="alice"),
        limit(3, user="alice", client_id_default="true"),
        limit(4, client_id="etl", user_default="true"),
        limit(5, ips, ip_default="true"),
        limit(6, ips, ip="10.0.0.1"),
        left_out(0),
    ]
    assert sorted(await scrape(service), key=str) == sorted(expected, key=str)


async def test_odd_names_and_values_are_read_back(service: FakeService):
    store(service, {"user": 'a"b\\c\nd'}, producer_byte_rate=math.inf)
    store(service, {"user": "<default>"}, producer_byte_rate=1.0)
    found = await scrape(service, "?has_key=producer_byte_rate")
    assert limit(math.inf, user='a"b\\c\nd') in found
    assert limit(1, user="<default>") in found


async def test_names_that_brokers_encode_have_their_tags(service: FakeService):
    store(service, {"user": "CN=bob", "client-id": "a b:c"}, producer_byte_rate=1.0)
    store(service, {"user": "CN=bob"}, producer_byte_rate=1.0, consumer_byte_rate=1.0)
    store(service, {"user": "alice"}, producer_byte_rate=1.0)
    tags = [
        tuple(labels.values())
        for name, labels, _ in await scrape(service)
        if name == "kafka_client_quota_tags"
    ]
    assert sorted(tags) == [
        ("CN=bob", "", "CN%3Dbob", ""),
        ("CN=bob", "a b:c", "CN%3Dbob", '"a b:c"'),
    ]


async def test_what_the_limit_leaves_out_is_counted(service: FakeService):
    for number in range(5):
        store(service, {"user": f"u{number}"}, producer_byte_rate=1.0, consumer_byte_rate=1.0)
    found = await scrape(service, "?limit=3")
    assert len([name for name, _, _ in found if name == "kafka_client_quota_limit"]) == 3
    assert left_out(7) in found


async def test_filters_are_those_of_describe(service: FakeService):
    store(service, {"user": "team-a-1"}, producer_byte_rate=1.0)
    store(service, {"user": "team-a-2"}, consumer_byte_rate=1.0)
    store(service, {"user": "team-b"}, producer_byte_rate=1.0)
    found = await scrape(service, f"?filter=user^=team-a-&has_key={PRODUCER}")
    assert found == [limit(1, user="team-a-1"), left_out(0)]


@pytest.mark.parametrize("query", ["limit=0", "limit=100001", "limit=x", "filter=nobody", "x=1"])
async def test_what_cannot_be_read_is_refused(service: FakeService, query: str):
    answer = await service.get(f"/metrics/quotas?{query}")
    assert answer.status in (400, 422)


async def test_it_needs_a_credential_and_the_right_to_describe(service: FakeService):
    assert (await service.get("/metrics/quotas", principal=None)).status == 401
    assert (await service.get("/metrics/quotas", principal="mallory")).status == 403
