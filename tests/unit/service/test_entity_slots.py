"""Places of entities in one process."""

import asyncio

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError
from app.service.alterations.entity_slots import EntitySlots
from tests.testkit.virtual_time import in_virtual_time

ALICE = ClientQuotaEntity.of({"user": "alice"})


async def hold_until(slots: EntitySlots, name: str, over: asyncio.Event) -> None:
    async with slots.hold([ALICE], name):
        await over.wait()


async def held(slots: EntitySlots, over: asyncio.Event) -> "asyncio.Task[None]":
    """Let somebody hold a place."""
    holding = asyncio.create_task(hold_until(slots, "first", over))
    await asyncio.sleep(0)
    return holding


@in_virtual_time
async def test_a_place_that_is_held_for_too_long_names_its_holder() -> None:
    slots, over = EntitySlots(), asyncio.Event()
    holding = await held(slots, over)
    with pytest.raises(EntityBusyError, match="first"):
        await hold_until(slots, "second", over)
    over.set()
    await holding


@in_virtual_time
async def test_a_place_that_is_freed_as_the_waiting_ends_is_taken() -> None:
    slots, over = EntitySlots(), asyncio.Event()
    slots._held[ALICE] = "first"
    waiting = asyncio.create_task(hold_until(slots, "second", over))
    await asyncio.sleep(0)
    async with slots._freed:
        await asyncio.wait({waiting}, timeout=5.0)  # its time ends while it cannot look
        del slots._held[ALICE]
    over.set()
    await waiting
    assert slots._held == {}
