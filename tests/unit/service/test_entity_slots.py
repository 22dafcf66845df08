"""Places of entities in one process."""

import asyncio
from contextlib import suppress

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


@pytest.mark.parametrize("error", [None, LookupError("a fault")])
async def test_every_entity_of_a_request_is_free_again_when_it_ends(
    error: LookupError | None,
) -> None:
    slots, entities = EntitySlots(), [ClientQuotaEntity.of({"user": name}) for name in "abc"]
    with suppress(LookupError):
        async with slots.hold(entities, "first"):
            assert set(slots._held) == set(entities)
            if error is not None:
                raise error
    for entity in entities:
        async with asyncio.timeout(30), slots.hold([entity], "second"):
            assert slots._held == {entity: "second"}
    assert slots._held == {}
