"""Made-up observations as points of metrics, in every shape that ``ingest`` reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.pipeline.tables import RESOURCES

_SCRAPED_AFTER_S: Final = 30
_RATES: Final = {"Request": "request_time", "ControllerMutation": "mutation_rate"}
_IDLE_EVERY: Final = 8
"""One of so many unthrottled minutes exports its throttle time all the same: as NaN."""

_PLAIN_TAG: Final = r"^[\w\-%. \t]*$"


def tidy_points(observations: DataFrame) -> DataFrame:
    """Return one row for each sample of each metric, names as people write them.

    Returns:
        cluster_id, ts (30 s into the minute), broker_id, metric, resource, user and client_id
        ('' where absent), value; ``attribute`` is the metric's name without its beginning.
    """
    resource = F.create_map(*map(F.lit, chain.from_iterable(RESOURCES.items())))[F.col("key")]
    rates = F.create_map(*map(F.lit, chain.from_iterable(_RATES.items())))
    attribute = F.coalesce(F.try_element_at(rates, resource), F.lit("byte_rate"))
    name = F.xxhash64("user", "client_id", "ts", "broker_id", "key")
    idle = F.pmod(name, F.lit(_IDLE_EVERY)) == 0
    throttle = F.coalesce("throttle_ms_avg", F.when(idle, F.lit(float("nan"))))
    both = F.array(
        _sample(attribute, F.col("rate_avg")),
        F.when(throttle.isNotNull(), _sample(F.lit("throttle_time"), throttle)),
    )
    samples = F.filter(both, lambda item: item.isNotNull())
    points = observations.select(
        *("cluster_id", "broker_id", "user", "client_id"),
        (F.col("ts") + F.make_dt_interval(secs=F.lit(_SCRAPED_AFTER_S))).alias("ts"),
        resource.alias("resource"),
        F.explode(samples).alias("sample"),
    )
    metric = F.concat(F.lit("kafka_server_quota_"), F.col("sample.attribute"))
    return points.select(
        *("cluster_id", "ts", "broker_id", metric.alias("metric")),
        *("resource", "user", "client_id", "sample.value", "sample.attribute"),
    )


def exported_points(observations: DataFrame, *, quoted: bool = True) -> DataFrame:
    """Return ``tidy_points`` with the names as brokers export them.

    Args:
        observations: As made up.
        quoted: The client-id passed JMX, as with the JMX exporter.

    Source: Sanitizer.sanitize for users, Sanitizer.jmxSanitize for client-ids.
    """
    coded = F.url_encode("user")
    for plain, code in (("+", "%20"), ("*", "%2A")):
        coded = F.replace(coded, F.lit(plain), F.lit(code))
    return tidy_points(observations).withColumns(
        {
            "user": coded,
            "client_id": _jmx_quoted(F.col("client_id")) if quoted else F.col("client_id"),
        }
    )


def vm_lines(observations: DataFrame) -> DataFrame:
    """Return the lines of VictoriaMetrics' /api/v1/export: a series with its points each.

    The names are those of Strimzi's reporter; a NaN is no point there.
    """
    style = [F.lit("kafka_server_"), F.lower("resource"), F.lit("_"), F.col("attribute")]
    labels = F.struct(
        F.concat(*style).alias("__name__"), *_labels("broker_id", "user", "client_id")
    )
    points = exported_points(observations, quoted=False).where(~F.isnan("value"))
    point = F.struct(F.unix_millis("ts").alias("at"), "value")
    series = points.groupBy(labels.alias("metric")).agg(
        F.array_sort(F.collect_list(point)).alias("points")
    )
    export = F.struct(
        "metric", F.col("points.value").alias("values"), F.col("points.at").alias("timestamps")
    )
    return series.select(F.to_json(export).alias("value"))


def prometheus_documents(observations: DataFrame) -> DataFrame:
    """Return what query_range answers for each metric and day, as (metric, dt, document)."""
    points = exported_points(observations).withColumns(
        {"dt": F.to_date("ts"), "clientId": F.col("client_id")}
    )
    labels = F.struct(
        F.col("metric").alias("__name__"), *_labels("broker_id", "resource", "user", "clientId")
    )
    text = F.concat(
        *(F.lit("["), F.unix_seconds("ts"), F.lit(',"'), F.col("value").cast("string")), F.lit('"]')
    )
    series = points.groupBy("metric", "dt", F.to_json(labels).alias("labels")).agg(
        F.array_join(F.array_sort(F.collect_list(text)), ",").alias("values")
    )
    result = F.concat(
        *(F.lit('{"metric":'), F.col("labels"), F.lit(',"values":['), F.col("values")), F.lit("]}")
    )
    documents = series.groupBy("metric", "dt").agg(
        F.array_join(F.array_sort(F.collect_list(result)), ",\n").alias("result")
    )
    begin = F.lit('{"status":"success","data":{"resultType":"matrix","result":[\n')
    return documents.select(
        "metric", "dt", F.concat(begin, "result", F.lit("\n]}}")).alias("document")
    )


def adapter_lines(observations: DataFrame) -> DataFrame:
    """Return the records of prometheus-kafka-adapter: a sample each, its value as text."""
    points = exported_points(observations)
    labels = F.struct(
        F.col("metric").alias("__name__"), *_labels("broker_id", "resource", "user", "client_id")
    )
    record = F.struct(
        _iso("ts").alias("timestamp"),
        F.col("value").cast("string").alias("value"),
        F.col("metric").alias("name"),
        labels.alias("labels"),
    )
    return points.select(F.to_json(record).alias("value"))


def csv_rows(observations: DataFrame) -> DataFrame:
    """Return the columns of an exported CSV file, times as RFC 3339."""
    tidy = tidy_points(observations)
    return tidy.select(
        _iso("ts").alias("ts"),
        *("broker_id", "metric", "resource", "user", "client_id"),
        F.col("value").cast("string").alias("value"),
    )


def parquet_rows(observations: DataFrame) -> DataFrame:
    """Return tidy columns; half of the absent names are null, the others empty."""
    absent = F.pmod(F.xxhash64("ts", "broker_id"), F.lit(2)) == 0
    names = [
        F.when(absent, F.nullif(name, F.lit(""))).otherwise(F.col(name)).alias(name)
        for name in ("user", "client_id")
    ]
    points = tidy_points(observations)
    return points.select("ts", "broker_id", "metric", "resource", *names, "value")


def collected_rows(observations: DataFrame) -> DataFrame:
    """Return what ``collect`` writes, with one ``up`` for each scrape of each broker."""
    points = exported_points(observations).drop("attribute")
    scrapes = points.select("cluster_id", "ts", "broker_id").distinct()
    empty = {name: F.lit("") for name in ("resource", "user", "client_id")}
    up = scrapes.withColumns({"metric": F.lit("up"), **empty, "value": F.lit(1.0)})
    return points.unionByName(up)


@dataclass(frozen=True)
class _Shape:
    """How a shape's rows become files.

    Attributes:
        rows: The rows of the shape.
        format: As Spark's writers call it.
        order: What sorts the rows of a file: they are the same whatever the cores.
        options: Of the writer.
        folder: Below the shape's.
        partitions: Columns whose values have files of their own.
    """

    rows: Callable[[DataFrame], DataFrame]
    format: str
    order: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    partitions: tuple[str, ...] = ()


_CSV: Final = {
    "header": "true",
    "escape": '"',
    "emptyValue": "",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_POINT: Final = ("ts", "broker_id", "metric", "resource", "user", "client_id")
_LINE: Final = ("value",)

_SHAPES: Final[Mapping[str, _Shape]] = {
    "parquet": _Shape(parquet_rows, "parquet", _POINT),
    "vm-jsonl": _Shape(vm_lines, "text", _LINE),
    "csv": _Shape(csv_rows, "csv", _POINT, _CSV),
    "adapter-json": _Shape(adapter_lines, "text", _LINE),
    "kafka-json": _Shape(adapter_lines, "text", _LINE),
    "collect": _Shape(collected_rows, "parquet", _POINT, folder="/collected"),
    "prom-json": _Shape(prometheus_documents, "text", (), partitions=("metric", "dt")),
}

SHAPES: Final = tuple(_SHAPES)
"""The names of ``ingest --format``."""


def write_shape(name: str, observations: DataFrame, uri: str) -> None:
    """Write the folder of a shape anew, as one file or one for each metric and day.

    Args:
        name: One of ``SHAPES``.
        observations: The columns of ``OBSERVATION_MINUTE``.
        uri: Above the shape's folder.
    """
    shape = _SHAPES[name]
    rows = (
        shape.rows(observations).coalesce(1).sortWithinPartitions(*shape.partitions, *shape.order)
    )
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.format(shape.format).options(**shape.options).partitionBy(*shape.partitions).save(
        f"{uri.rstrip('/')}/{name}{shape.folder}"
    )


def _sample(attribute: Column, value: Column) -> Column:
    return F.struct(attribute.alias("attribute"), value.alias("value"))


def _labels(*names: str) -> list[Column]:
    """Return labels as text; an empty one is not exported."""
    return [F.nullif(F.col(name).cast("string"), F.lit("")).alias(name) for name in names]


def _jmx_quoted(name: Column) -> Column:
    """Source: ObjectName.quote."""
    escaped = F.regexp_replace(name, r'([\\"*?])', r"\\$1")
    quoted = F.concat(F.lit('"'), F.replace(escaped, F.lit("\n"), F.lit("\\n")), F.lit('"'))
    return F.when(name.rlike(_PLAIN_TAG), name).otherwise(quoted)


def _iso(name: str) -> Column:
    return F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss'Z'")
