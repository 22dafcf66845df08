"""Snapshots of all quotas: what they say of each entity, and how they join what is stored."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity, EntityType

_COLUMNS: Final = (
    (EntityType.USER.value, "user", "user_default"),
    (EntityType.CLIENT_ID.value, "client_id", "client_default"),
)
_QUOTA: Final = ("cluster_id", "user", "user_default", "client_id", "client_default", "key")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one entity held when everything was described; empty where it was not there."""

    taken_at: datetime
    values: Values


def entity_columns(entity: ClientQuotaEntity) -> Mapping[str, Any]:
    """Return the columns of ``quota_version`` that name an entity."""
    names = entity.as_dict()
    columns: dict[str, Any] = {}
    for kind, name, flag in _COLUMNS:
        columns[name] = names.get(kind) or ""
        columns[flag] = kind in names and names[kind] is None
    return columns


def entity_of_columns(row: Mapping[str, Any]) -> ClientQuotaEntity:
    """Return the entity that columns of ``quota_version`` or ``quota_snapshot`` name."""
    names: dict[str, str | None] = {}
    for kind, name, flag in _COLUMNS:
        if row[flag] or row[name]:
            names[kind] = None if row[flag] else row[name]
    return ClientQuotaEntity.of(names)


def snapshots_of(
    rows: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[str, ClientQuotaEntity, list[Snapshot]]]:
    """Return what the snapshots say of each entity that any of them has, in order of time.

    Args:
        rows: ``quota_snapshot``.
    """
    taken: dict[str, set[datetime]] = {}
    seen: dict[tuple[str, ClientQuotaEntity], dict[datetime, dict[str, float]]] = {}
    for row in rows:
        taken.setdefault(row["cluster_id"], set()).add(row["taken_at"])
        position = (row["cluster_id"], entity_of_columns(row))
        seen.setdefault(position, {}).setdefault(row["taken_at"], {})[row["key"]] = row["value"]
    for (cluster_id, entity), values in seen.items():
        times = sorted(taken[cluster_id])
        yield cluster_id, entity, [Snapshot(time, values.get(time, {})) for time in times]


def join_versions(stored: DataFrame, live: DataFrame, taken_at: datetime) -> DataFrame:
    """Return the stored versions as a later snapshot shows them.

    A value that holds as it is stored goes on, one that does not ends when the snapshot was taken,
    and what the snapshot alone has begins then. What begins later is left alone.

    Args:
        stored: ``quota_version``.
        live: The same columns, one row for each value of the snapshot.
        taken_at: UTC.
    """
    ended, current = stored.where("valid_to is not null"), stored.where("valid_to is null")
    later = current.where(sf.col("valid_from") > taken_at)
    earlier = current.where(sf.col("valid_from") <= taken_at)
    same = earlier.join(live.select(*_QUOTA, "value"), [*_QUOTA, "value"], "left_semi")
    changed = earlier.join(live.select(*_QUOTA, "value"), [*_QUOTA, "value"], "left_anti")
    held = same.unionByName(later)
    return (
        ended.unionByName(held)
        .unionByName(
            changed.withColumn("valid_to", sf.lit(taken_at)).where("valid_from < valid_to")
        )
        .unionByName(live.join(held.select(*_QUOTA), list(_QUOTA), "left_anti"))
    )
