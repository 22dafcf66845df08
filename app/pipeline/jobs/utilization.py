"""How much of its limit each bucket used on each day, by broker and over all brokers."""

from pyspark.sql import DataFrame, SparkSession

from app.pipeline.exchange import BLOB_DDL, Shares, exchanged, for_each
from app.pipeline.jobs.utilization_minutes import BucketMinutes, Divide, expected_minutes
from app.pipeline.jobs.utilization_tasks import TOLD_DDL, OfBlobs, OfFiles, Sum
from app.pipeline.sources.table_pieces import rows_by_day


def utilization(session: SparkSession, minutes: BucketMinutes, place: str) -> DataFrame:
    """Let tasks write ``UTILIZATION_DAILY`` and ``UTILIZATION_HIST``.

    How many files there are follows from the minutes alone.

    Args:
        session: Does it.
        minutes: Rates are per second and broker.
        place: The folder above both tables.

    Returns:
        The columns of ``TOLD_DDL``, a row for each day that a task had any minutes of. Each use
        does the work.
    """
    sums = Sum(place, expected_minutes(session, minutes))
    count = len(minutes.pieces)
    if minutes.are_whole:
        return for_each(session, count, OfFiles(minutes, sums), TOLD_DDL)
    shares = Shares.of(rows_by_day(minutes.pieces))
    blobs = for_each(session, count, Divide(minutes, shares), BLOB_DDL)
    return exchanged(blobs, shares.parts).mapInArrow(OfBlobs(sums), TOLD_DDL)
