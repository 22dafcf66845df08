"""What was planned for another cluster is not there on this one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.callers import Caller
from app.domain.errors import NotFoundError
from app.domain.plans import PlannedChange
from app.service.alterations.alteration_command import AlterCommand
from app.service.clock import utc_now
from app.service.plans.plan_apply import ApplyPlans
from app.service.plans.plan_records import ChangeWithImpact, KeptPlan
from tests.testkit.fake_ports import FakePlans
from tests.unit.service.alter_world import ALICE, KEY, World, setting

CI = Caller("User:ci", "127.0.0.1", "bearer")
COMMAND = AlterCommand(CI, {"rule": "allow-acl"}, "r2", ())


@pytest.mark.parametrize("changes", [True, False])
async def test_a_plan_for_another_cluster_is_not_applied_here(world: World, changes: bool) -> None:
    change = PlannedChange(setting(ALICE, "5"), {}, {KEY: 5.0}, {KEY: None})
    plan = KeptPlan(
        plan_id="p1",
        cluster_id="elsewhere",
        author="User:ci",
        owner="team",
        prune=False,
        adopt=False,
        scope=(),
        created_at=utc_now(),
        expires_at=utc_now() + timedelta(hours=1),
        base="b",
        changes=(ChangeWithImpact(change, {}),) if changes else (),
        conflicts=(),
        kept=(),
        rests_on={ALICE: {KEY: None}},
    )
    plans = FakePlans()
    await plans.keep(plan)
    applying = ApplyPlans(plans, world.service, world.brokers)
    with pytest.raises(NotFoundError):
        await applying.apply(COMMAND, "p1", force=False)
    assert world.log == []
    await plans.keep(replace(plan, cluster_id="fake"))
    await applying.apply(COMMAND, "p1", force=False)
    assert world.brokers.quotas == ({ALICE: {KEY: 5.0}} if changes else {})
