"""Many entities at once: stored, or all but some removed."""

from collections.abc import Sequence

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from benchmarks.wire import WireQuotas
from benchmarks.workload import KEYS, Entities

_MOST = 10_000 // len(KEYS)
"""Entities in a request; a controller takes 10,000 records. Source: QuorumController."""


async def store(wire: WireQuotas, entities: Entities, value: int) -> None:
    """Store the entities, and wait until the last one shows."""
    await _alter(wire, entities.alterations(value))
    last = entities.exact(entities.count - 1)
    await wire.until_readable(last, entities.keys[-1], value)


async def keep_only(wire: WireQuotas, stored: Entities) -> None:
    """Remove every other entity, and wait until they are gone."""
    wanted = {ClientQuotaEntity.of(stored.names(index)) for index in range(stored.count)}
    quotas = await wire.describe(ALL_ENTITIES)
    removals = [
        ClientQuotaAlteration(entity, tuple(Op(key, remove=True) for key in values))
        for entity, values in quotas.items()
        if entity not in wanted
    ]
    await _alter(wire, removals)

    async def gone() -> bool:
        return (await wire.describe(ALL_ENTITIES)).keys() <= wanted

    await wire.until(gone)


async def _alter(wire: WireQuotas, alterations: Sequence[ClientQuotaAlteration]) -> None:
    for begin in range(0, len(alterations), _MOST):
        await wire.alter(alterations[begin : begin + _MOST])
