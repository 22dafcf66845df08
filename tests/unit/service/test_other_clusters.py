"""What was seen on one cluster is never applied to another one that has taken its place."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from app.domain.callers import Caller
from app.domain.errors import ExpectationFailedError
from app.domain.plans import PlannedChange
from app.service.alterations.alteration_command import AlterCommand
from app.service.alterations.revert import RevertAlterations
from app.service.audit_records import AlterationRecord
from app.service.clock import utc_now
from app.service.plans.plan_apply import ApplyPlans
from app.service.plans.plan_records import ChangeWithImpact, KeptPlan
from tests.testkit.fake_ports import FakePlans
from tests.unit.service.alter_world import ALICE, KEY, World, setting

CI = Caller("User:ci", "127.0.0.1", "bearer")
COMMAND = AlterCommand(CI, {"rule": "allow-acl"}, "r2", ())


@dataclass
class Trail:
    """An audit trail of one record."""

    record: AlterationRecord

    async def alteration(self, caller: Caller, alteration_id: str) -> AlterationRecord:
        return self.record


async def test_an_alteration_of_another_cluster_is_not_reverted_here(world: World) -> None:
    world.brokers.quotas[ALICE] = {KEY: 1.0}
    report = await world.alter(setting(ALICE, "5"))
    record = await world.journal.alteration(report.alteration_id)
    assert record is not None
    elsewhere = replace(record, request=replace(record.request, cluster_id="elsewhere"))
    for each, holds in ((elsewhere, 5.0), (record, 1.0)):
        revert = RevertAlterations(Trail(each), world.service)  # type: ignore[arg-type]
        if each is elsewhere:
            with pytest.raises(ExpectationFailedError, match="another cluster"):
                await revert.revert(COMMAND, report.alteration_id)
        else:
            await revert.revert(COMMAND, report.alteration_id)
        assert world.brokers.quotas[ALICE] == {KEY: holds}


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
    applying = ApplyPlans(plans, world.service)
    with pytest.raises(ExpectationFailedError) as caught:
        await applying.apply(COMMAND, "p1", force=False)
    assert caught.value.code == "plan-outdated"
    assert world.log == []
    await plans.keep(replace(plan, cluster_id="fake"))
    await applying.apply(COMMAND, "p1", force=False)
    assert world.brokers.quotas == ({ALICE: {KEY: 5.0}} if changes else {})
