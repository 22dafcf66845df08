"""Who waits until a change can be read, and for which brokers."""

import pytest

from app.domain.alterations import Overall
from app.service.alterations.alteration_command import Wait
from tests.unit.service.alter_world import ALICE, KEY, World, setting


async def test_a_change_that_does_not_show_in_time_is_applied_and_not_readable(
    world: World,
) -> None:
    world.brokers.stale_reads = 1000
    report = await world.alter(setting(ALICE, "5"), wait_ms=50)
    assert (report.overall, report.readable) == (Overall.APPLIED, False)


async def test_nobody_waits_for_a_change_when_wait_is_none(world: World) -> None:
    world.brokers.stale_reads = 1000
    report = await world.alter(setting(ALICE, "5"), wait=Wait.NONE)
    assert (report.overall, report.readable) == (Overall.APPLIED, None)


@pytest.mark.parametrize("permitted", [True, False])
async def test_a_stale_broker_does_not_make_before_a_lie(world: World, permitted: bool) -> None:
    world.brokers.permits_quorum = permitted
    await world.alter(setting(ALICE, "5"), wait=Wait.NONE)
    world.brokers.stale_reads = 3
    report = await world.alter(setting(ALICE, "6"), wait=Wait.NONE)
    assert report.results[0].before == {KEY: 5.0}


async def test_all_brokers_are_asked_when_that_is_what_the_caller_waits_for(world: World) -> None:
    report = await world.alter(setting(ALICE, "5"), wait=Wait.ALL_BROKERS)
    assert report.readable is True


async def test_what_was_applied_is_told_where_nobody_knows_which_brokers_are_live(
    world: World,
) -> None:
    world.brokers.all_fenced = True
    report = await world.alter(setting(ALICE, "5"), wait=Wait.ALL_BROKERS)
    assert (report.overall, report.readable) == (Overall.APPLIED, False)
