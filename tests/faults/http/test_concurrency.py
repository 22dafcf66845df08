"""No update is lost, and no request is two changes, however many callers there are."""

from app.localdev.kafka import LocalKafka
from tests.faults.http.concurrency import (
    ask_thrice,
    assert_each_is_one_change,
    assert_none_is_lost,
    count_up,
)
from tests.testkit.service import RunningService
from tests.testkit.sizes import size


async def test_no_increment_of_an_expected_value_is_lost(
    patient_service: RunningService, kafka: LocalKafka
):
    count = await count_up(patient_service, writers=size(12, 100), attempts=size(6, 100))
    assert_none_is_lost(kafka, count)


async def test_a_request_that_is_sent_three_times_with_its_key_is_one_change(
    patient_service: RunningService, kafka: LocalKafka
):
    team = await ask_thrice(patient_service, requests=size(60, 1000))
    assert_each_is_one_change(patient_service, kafka, team)
