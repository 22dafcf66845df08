"""Two owners at the same time."""

from tests.testkit.plan_teams import let_two_teams_work
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

STEPS = size(25, 100)
"""Of each."""


def test_nobody_s_values_are_lost_and_nothing_outside_is_touched(
    service: RunningService, raw: RawQuotas
) -> None:
    for statuses in let_two_teams_work(service, raw, STEPS):
        assert statuses.count(200) > STEPS / 5
