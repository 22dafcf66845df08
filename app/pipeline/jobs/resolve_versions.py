"""Quota versions as resolution wants them: with the level of their entity, and when they hold."""

from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Slot
from app.pipeline.errors import UsageError
from app.pipeline.jobs.resolve_levels import level_of_entity

ALWAYS: Final = "1900-01-01 00:00:00"
FOREVER: Final = "9999-12-31 23:59:59"

FEW: Final = 1_000_000
"""Up to so many rows one task is done before several have exchanged them."""

_ENTITY: Final = ("cluster_id", "level", "user", "client_id")


def always() -> Column:
    """Return the time from which a value holds that has no known beginning."""
    return sf.lit(ALWAYS).cast("timestamp")


def forever() -> Column:
    """Return the time until which a value holds that has no end."""
    return sf.lit(FOREVER).cast("timestamp")


def latest_versions(rows: DataFrame) -> DataFrame:
    """Return the values that hold now, as if they had always held.

    Args:
        rows: ``quota_version``.

    Returns:
        cluster_id, key, level (int, 1 to 8), user and client_id (string, '' where the entity of
        the level does not name one), value (double), valid_from and valid_to (timestamp, never
        null, the latter exclusive).
    """
    now = _with_levels(rows.where(sf.col("valid_to").isNull()))
    return now.withColumns({"valid_from": always(), "valid_to": forever()})


def versions_in_history(rows: DataFrame) -> DataFrame:
    """Return what held when; an entity's first versions are taken to have held before, too.

    Args:
        rows: ``quota_version``.

    Returns:
        As ``latest_versions``.
    """
    ended = sf.coalesce("valid_to", forever())
    versions = _with_levels(rows).withColumn("valid_to", ended)
    versions = versions.where(sf.col("valid_from") < sf.col("valid_to"))
    first = sf.min("valid_from").over(Window.partitionBy(*_ENTITY))
    begun = sf.when(sf.col("valid_from") == first, always()).otherwise(sf.col("valid_from"))
    return versions.withColumn("valid_from", begun)


def gathered(versions: DataFrame) -> DataFrame:
    """Return cached versions in one partition where they are few, so that none is ever shuffled."""
    return versions.coalesce(1) if versions.count() <= FEW else versions


def refuse_overlaps(versions: DataFrame) -> None:
    """Make sure that a key of an entity never has two values at a time.

    Args:
        versions: As ``latest_versions`` returns them.

    Raises:
        UsageError: It has, so that an observation would count twice.
    """
    in_turn = Window.partitionBy(*_ENTITY, "key").orderBy("valid_from", "valid_to")
    later = sf.lead("valid_from").over(in_turn)
    doubled = versions.withColumn("later", later).where(sf.col("later") < sf.col("valid_to"))
    named = doubled.select(*_ENTITY, "key", sf.col("later").cast("string").alias("later"))
    found = named.orderBy(*_ENTITY, "key", "later").head()
    if found is not None:
        message = (
            f"The quota versions of {described(found)} overlap: two values of {found.key} hold at "
            f"{_time(found.later)}. Give --quotas a folder in which each value ends before the "
            "next one begins."
        )
        raise UsageError(message)


def described(row: Row) -> str:
    """Name the entity of a version for people."""
    names = f"level {row.level}, user {row.user!r}, client-id {row.client_id!r}"
    return f"cluster {row.cluster_id!r}, {names}"


def _time(text: str) -> str:
    return "the same time" if text == ALWAYS else text


def _with_levels(rows: DataFrame) -> DataFrame:
    level = level_of_entity(_slot("user"), _slot("client"))
    names = {
        "user": _name("user", "user"),
        "client_id": _name("client_id", "client"),
    }
    return (
        rows.where(sf.col("value").isNotNull())
        .withColumn("level", level)
        .where(sf.col("level").isNotNull())
        .withColumns(names)
        .select(*_ENTITY, "key", "value", "valid_from", "valid_to")
    )


def _slot(kind: str) -> Column:
    name = "user" if kind == "user" else "client_id"
    named = sf.coalesce(sf.col(name), sf.lit("")) != ""
    return (
        sf.when(sf.col(f"{kind}_default"), int(Slot.DEFAULT))
        .when(named, int(Slot.NAMED))
        .otherwise(int(Slot.ABSENT))
    )


def _name(name: str, kind: str) -> Column:
    return sf.when(sf.col(f"{kind}_default"), "").otherwise(sf.coalesce(sf.col(name), sf.lit("")))
