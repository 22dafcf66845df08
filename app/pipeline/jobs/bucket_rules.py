"""What minutes of a bucket mean: the columns of ``BUCKET_MINUTE`` as rules."""

from pyspark.sql import Column
from pyspark.sql import functions as sf


def usable_limit(limit: Column) -> Column:
    """Return the limit where a rate can be compared with it, else null.

    Other tools store NaN, zero and negative limits. A broker never finds a rate above NaN; the
    others have no sensible ratio.
    """
    return sf.when((limit > 0) & ~sf.isnan(limit), limit)


def throttle_ms() -> Column:
    """Return the longest throttling that was recorded in the minute, in ms; null for none."""
    return sf.greatest("throttle_ms_avg", "throttle_ms_max")


def is_throttled() -> Column:
    """Tell whether the broker throttled; never null."""
    return sf.coalesce(throttle_ms() > 0, sf.lit(False))


def is_over(share: float) -> Column:
    """Tell whether the highest rate was above this share of the limit; never null."""
    limit = sf.col("limit")
    return sf.coalesce(
        (sf.col("rate_max") > sf.lit(share) * limit) & ~sf.isnan(limit), sf.lit(False)
    )
