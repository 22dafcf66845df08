"""What each bucket did in each minute, and who it is."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.domain.resolution_levels import Slot
from app.pipeline.exchange import BLOB_DDL, exchanged
from app.pipeline.folders import Partition
from app.pipeline.jobs.resolve_days import OfDays
from app.pipeline.jobs.resolve_levels import case, names_client_id, names_user
from app.pipeline.jobs.resolve_members import Members
from app.pipeline.jobs.resolve_tables import refuse_same_hash
from app.pipeline.jobs.resolve_tasks import TOLD_DDL, Task
from app.pipeline.sources.table_pieces import TablePiece, same_in_all

_OF_BUCKET: Final = ("cluster_id", "key", "bucket_id")
_TAGS: Final = ("bucket_user", "bucket_client")


def from_one_source(pieces: Sequence[TablePiece]) -> bool:
    """Tell whether all rows have one grain and source, so that a name has one row a minute."""
    return all(same_in_all(pieces, column) is not None for column in ("grain", "source"))


def bucket_minutes(resolved: DataFrame, members: Members, place: str) -> DataFrame:
    """Let tasks sum up the members of each bucket in each minute on each broker, and write them.

    How many files there are follows from the rows alone.

    Args:
        resolved: ``observed_names`` as ``resolve`` returns them.
        members: Finds the rows of the names.
        place: The folder of ``BUCKET_MINUTE``.

    Returns:
        The columns of ``TOLD_DDL``, a row for each task that had any rows. Each use does the work.
    """
    answers = resolved.select("piece", "code", "level", "limit", "bucket_id")
    pieces, shares = members.observations.pieces, members.shares
    if pieces and shares.holds_days:
        parts = ", ".join(str(shares.places[piece.place][0]) for piece in pieces)
        of_part = sf.expr(f"get(array({parts}), piece)")
        given = answers.repartitionById(shares.parts, of_part)
        return given.mapInArrow(OfDays(members, Task(place)), TOLD_DDL)
    blobs = answers.repartitionById(max(1, len(pieces)), "piece").mapInArrow(members, BLOB_DDL)
    return exchanged(blobs, shares.parts).mapInArrow(Task(place), TOLD_DDL)


def dim_buckets(resolved: DataFrame) -> DataFrame:
    """Say who spends from each bucket, and which entity's quota limits it.

    Args:
        resolved: ``observed_names`` as ``resolve`` returns them.

    Returns:
        ``dim_bucket`` and ``rows``, how many observations there are. Of a bucket that nothing
        limits (level 0) the names are '' and not default, as those of an entity without either
        type.
    """
    seen = resolved.groupBy(*_OF_BUCKET, "level", *_TAGS).agg(
        sf.min("ts").alias("first_seen"),
        sf.max("last").alias("last_seen"),
        sf.sum("rows").alias("rows"),
    )
    user, client = names_user("`level`", Slot.NAMED), names_client_id("`level`", Slot.NAMED)
    entity = {
        "quota_user": case([(user, "bucket_user")], "''"),
        "quota_user_default": names_user("`level`", Slot.DEFAULT),
        "quota_client_id": case([(client, "bucket_client")], "''"),
        "quota_client_default": names_client_id("`level`", Slot.DEFAULT),
    }
    return seen.selectExpr("*", *(f"{item} AS {name}" for name, item in entity.items()))


def refuse_collisions(buckets: DataFrame) -> None:
    """Make sure that no two buckets have the same id.

    Args:
        buckets: As ``dim_buckets`` returns them.

    Raises:
        UsageError: Two have.
    """
    owners = sf.struct("cluster_id", "key", *_TAGS)
    shared = buckets.groupBy("bucket_id").agg(
        sf.min(owners).alias("one"), sf.max(owners).alias("other")
    )
    found = shared.where(sf.col("one") != sf.col("other")).orderBy("bucket_id").head()
    if found is not None:
        refuse_same_hash(tuple(found.one), tuple(found.other), "bucket_id")


def with_earlier_buckets(
    buckets: DataFrame, earlier: DataFrame, days: Iterable[Partition]
) -> DataFrame:
    """Keep the buckets of days that a run is not about.

    Args:
        buckets: ``dim_bucket`` of the run.
        earlier: ``dim_bucket`` as it was published before.
        days: What the run replaces.
    """
    replaced: dict[str, list[date]] = {}
    for day in days:
        replaced.setdefault(day["cluster_id"], []).append(date.fromisoformat(day["dt"]))
    of_run = buckets.sparkSession.createDataFrame(
        list(replaced.items()), "cluster_id string, replaced array<date>"
    )
    lived = sf.sequence(sf.to_date("first_seen"), sf.to_date("last_seen"))
    others = earlier.join(sf.broadcast(of_run), "cluster_id").where(
        sf.size(sf.array_except(lived, sf.col("replaced"))) > 0
    )
    same = [name for name in earlier.columns if name not in {"first_seen", "last_seen"}]
    both = buckets.select(*earlier.columns).unionByName(others.select(*earlier.columns))
    return both.groupBy(*same).agg(
        sf.min("first_seen").alias("first_seen"), sf.max("last_seen").alias("last_seen")
    )
