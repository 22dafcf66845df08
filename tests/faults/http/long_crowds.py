"""As test_crowds, with as many callers as are promised."""

from app.localdev.kafka import LocalKafka
from tests.faults.http.crowds import (
    ask_thrice,
    assert_each_is_one_change,
    assert_none_is_lost,
    count_up,
)
from tests.testkit.service import RunningService


async def test_none_of_10000_increments_is_lost(service: RunningService, kafka: LocalKafka):
    count = await count_up(service, writers=100, attempts=100)
    assert_none_is_lost(kafka, count)


async def test_1000_requests_sent_three_times_are_1000_changes(
    service: RunningService, kafka: LocalKafka
):
    team = await ask_thrice(service, requests=1000)
    assert_each_is_one_change(service, kafka, team)
