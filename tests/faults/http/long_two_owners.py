"""Two owners at the same time, at length: 200 plans and applies, pruning and force among them."""

from collections.abc import Iterator

import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.plan_teams import let_two_teams_work
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

STEPS = 100
"""Of each."""


@pytest.fixture
def raw(kafka: LocalKafka) -> Iterator[RawQuotas]:
    """The quota protocol by hand."""
    with RawQuotas(kafka.bootstrap_servers) as connection:
        yield connection


def test_two_hundred_steps_of_two_owners(service: RunningService, raw: RawQuotas) -> None:
    for statuses in let_two_teams_work(service, raw, STEPS):
        assert statuses.count(200) > STEPS / 5
