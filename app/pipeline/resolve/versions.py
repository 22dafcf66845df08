"""Quota versions as resolution needs them: the level of the entity, and when each holds."""

from typing import Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Slot
from app.pipeline.errors import UsageError
from app.pipeline.resolve.precedence import case, level_of_entity

ALWAYS: Final = "1900-01-01 00:00:00"
"""The time from which a value holds that has no recorded beginning."""

_SNAPSHOT: Final = "snapshot"
_ENTITY: Final = ("cluster_id", "level", "user", "client_id")

FOREVER_SQL: Final = "TIMESTAMP '9999-12-31 23:59:59'"
"""The time until which a value holds that has no end."""

_ALWAYS_SQL: Final = f"TIMESTAMP '{ALWAYS}'"


def latest_versions(rows: DataFrame) -> DataFrame:
    """Return the values that hold now, as if they had always held.

    Args:
        rows: ``quota_version``.

    Returns:
        cluster_id, key, level (int, 1 to 8), user and client_id (string, '' where the entity of
        the level does not name one), value (double), valid_from and valid_to (timestamp, never
        null, the latter exclusive).
    """
    now = rows.where("valid_to IS NULL")
    return _with_levels(now, f"{_ALWAYS_SQL} AS valid_from", f"{FOREVER_SQL} AS valid_to")


def versions_in_history(rows: DataFrame) -> DataFrame:
    """Return which value held when.

    Where a snapshot saw the entity first, its values hold from the beginning of time; an entity
    whose creation is in the log had none before.

    Args:
        rows: ``quota_version``.

    Returns:
        As ``latest_versions``.
    """
    ended = f"coalesce(valid_to, {FOREVER_SQL}) AS valid_to"
    versions = _with_levels(rows, "valid_from", ended, "origin").where("valid_from < valid_to")
    first = sf.min("valid_from").over(Window.partitionBy(*_ENTITY))
    seen_first = (sf.col("origin") == _SNAPSHOT) & (sf.col("valid_from") == first)
    begun = sf.when(seen_first, sf.expr(_ALWAYS_SQL)).otherwise(sf.col("valid_from"))
    return versions.withColumn("valid_from", begun).drop("origin")


def count_versions(versions: DataFrame) -> dict[str, int]:
    """Count each cluster's versions, and make sure that a key never has two values at a time.

    Args:
        versions: As ``latest_versions`` returns them.

    Raises:
        UsageError: It has, so that an observation would count twice.
    """
    in_turn = Window.partitionBy(*_ENTITY, "key").orderBy("valid_from", "valid_to")
    later = sf.lead("valid_from").over(in_turn)
    entity = sf.struct(*_ENTITY, "key", sf.col("later").cast("string").alias("later"))
    doubled = sf.min(sf.when(sf.col("later") < sf.col("valid_to"), entity))
    by_cluster = versions.withColumn("later", later).groupBy("cluster_id")
    counted = by_cluster.agg(sf.count(sf.lit(1)), doubled).collect()
    if found := min((row[2] for row in counted if row[2] is not None), default=None):
        message = (
            f"The quota versions of {_describe(found)} overlap: two values of {found.key} hold at "
            f"{_time(found.later)}. Give --quotas a folder in which each value ends before the "
            "next one begins."
        )
        raise UsageError(message)
    return {row[0]: row[1] for row in counted}


def _describe(row: Row) -> str:
    names = f"level {row.level}, user {row.user!r}, client-id {row.client_id!r}"
    return f"cluster {row.cluster_id!r}, {names}"


def _time(text: str) -> str:
    return "the same time" if text == ALWAYS else text


def _with_levels(rows: DataFrame, *others: str) -> DataFrame:
    level = level_of_entity(_slot("user", "user"), _slot("client_id", "client"))
    names = (_name("user", "user"), _name("client_id", "client"))
    values = rows.where("`value` IS NOT NULL").selectExpr(
        *("cluster_id", f"{level} AS `level`", *names, "`key`", "`value`"), *others
    )
    return values.where("`level` IS NOT NULL")


def _slot(name: str, kind: str) -> str:
    cases = [(f"{kind}_default", Slot.DEFAULT), (f"coalesce(`{name}`, '') <> ''", Slot.NAMED)]
    return case(((condition, str(int(slot))) for condition, slot in cases), str(int(Slot.ABSENT)))


def _name(name: str, kind: str) -> str:
    value = case([(f"{kind}_default", "''")], f"coalesce(`{name}`, '')")
    return f"{value} AS `{name}`"
