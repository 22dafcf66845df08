"""Read the newest hour of tidy Parquet and write its rows: what a small job costs at least."""

import argparse
import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def main() -> None:
    """Do what the documentation of Spark shows, with its own settings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    session = SparkSession.builder.appName("bare script").master("local[*]").getOrCreate()
    points = session.read.parquet(options.input)
    newest = points.agg(sf.date_trunc("hour", sf.max("ts"))).collect()[0][0]
    hours = points.where(sf.col("ts") >= newest).withColumns(
        {"dt": sf.to_date("ts"), "hour": sf.hour("ts")}
    )
    hours.write.mode("overwrite").partitionBy("dt", "hour").parquet(options.out)
    rows = session.read.parquet(options.out).count()
    session.stop()
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
