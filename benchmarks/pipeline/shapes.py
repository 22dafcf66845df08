"""Observations of buckets that are there all the time, as those of a service are."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from app.pipeline.lake import Lake
from app.pipeline.synth.formats import write_shape
from app.pipeline.synth.tables import KEYS, Plan, client_name, quotas, user_name
from app.pipeline.tables import QUOTA_VERSION

CLUSTER: Final = "steady"

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_KEYS: Final = KEYS[:2]
_NOISE: Final = 100_000
_SEED: Final = 1
_THROTTLED_EVERY: Final = 50


@dataclass(frozen=True)
class Steady:
    """Each name is on each broker in each minute.

    Attributes:
        brokers: How many.
        names: Pairs of user and client-id, each with two keys.
        minutes: From the first day's midnight on.
        entities: With quotas.
    """

    brokers: int
    names: int
    minutes: int
    entities: int

    @property
    def observations(self) -> int:
        """Rows: one a minute of each name, key and broker."""
        return self.brokers * self.names * len(_KEYS) * self.minutes

    def write(self, session: SparkSession, data: Path) -> None:
        """Write the observations as tidy Parquet, and the quotas."""
        plan = Plan(_SEED, self.observations, self.entities, CLUSTER, _START)
        Lake(session, str(data)).write(quotas(session, plan), QUOTA_VERSION)
        write_shape("parquet", self._rows(session), str(data))

    def _rows(self, session: SparkSession) -> DataFrame:
        numbers = session.range(self.observations)
        drawn = sf.pmod(sf.xxhash64("id"), sf.lit(_NOISE))
        key, name = _digit(1, len(_KEYS)), _digit(len(_KEYS), self.names)
        broker = sf.expr(_digit(len(_KEYS) * self.names, self.brokers))
        minute = sf.expr(f"id div {self.observations // self.minutes}")
        begin = int(_START.timestamp())
        return numbers.select(
            sf.lit(CLUSTER).alias("cluster_id"),
            (broker + 1).cast("int").alias("broker_id"),
            sf.get(sf.array(*map(sf.lit, _KEYS)), sf.expr(key).cast("int")).alias("key"),
            sf.expr(user_name(name)).alias("user"),
            sf.expr(client_name(name)).alias("client_id"),
            sf.timestamp_seconds(sf.lit(begin) + minute * 60).alias("ts"),
            drawn.cast("double").alias("rate_avg"),
            sf.when(drawn % _THROTTLED_EVERY == 0, sf.lit(25.0)).alias("throttle_ms_avg"),
        )


def _digit(above: int, base: int) -> str:
    """Return a digit of the row's number, whose lower ones count up to ``above``."""
    return f"(id div {above} % {base})"
