"""Made-up observations as points of metrics, in every shape that ``ingest`` reads."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.pipeline.tables import RESOURCES

_THROTTLE: Final = """
    coalesce(throttle_ms_avg,
      if(pmod(xxhash64(user, client_id, ts, broker_id, key), 8) = 0, double('NaN'), null))
"""
"""One of eight unthrottled minutes exports its throttle time all the same: as NaN."""

_SAMPLE: Final = """
    explode(filter(array(
      struct(case resource when 'Request' then 'request_time'
          when 'ControllerMutation' then 'mutation_rate' else 'byte_rate' end as attribute,
        rate_avg as value),
      if(throttle is null, null, struct('throttle_time' as attribute, throttle as value))
    ), sample -> sample is not null)) as sample
"""


def tidy_points(observations: DataFrame) -> DataFrame:
    """Return one row for each sample of each metric, names as people write them.

    Returns:
        cluster_id, ts (30 s into the minute), broker_id, metric, resource, user and client_id
        ('' where absent), value; ``attribute`` is the metric's name without its beginning.
    """
    resource = F.create_map(*map(F.lit, chain.from_iterable(RESOURCES.items())))[F.col("key")]
    points = observations.withColumns({"resource": resource, "throttle": F.expr(_THROTTLE)})
    return points.selectExpr("*", _SAMPLE).selectExpr(
        *("cluster_id", "ts + interval 30 seconds as ts", "broker_id"),
        "concat('kafka_server_quota_', sample.attribute) as metric",
        *("resource", "user", "client_id", "sample.value", "sample.attribute"),
    )


_USER: Final = "replace(replace(url_encode(user), '+', '%20'), '*', '%2A')"
_CLIENT: Final = r"""
    if(client_id rlike r'^[\w\-%. \t]*$', client_id, concat('"',
      replace(regexp_replace(client_id, r'([\\"*?])', r'\\$1'), '\n', r'\n'), '"'))
"""


def exported_points(observations: DataFrame, *, quoted: bool = True) -> DataFrame:
    """Return ``tidy_points`` with the names as brokers export them.

    Args:
        quoted: The client-id passed JMX, as with the JMX exporter.

    Source: Sanitizer.sanitize for users, Sanitizer.jmxSanitize and ObjectName.quote for client-ids.
    """
    names = {"user": F.expr(_USER), **({"client_id": F.expr(_CLIENT)} if quoted else {})}
    return tidy_points(observations).withColumns(names)


def _labels(metric: str, *names: str) -> Column:
    """Return the labels of a metric as text; an empty one is not exported."""
    texts = [F.expr(f"nullif(cast({name} as string), '')").alias(name) for name in names]
    return F.struct(F.expr(metric).alias("__name__"), *texts)


def vm_lines(observations: DataFrame) -> DataFrame:
    """Return the lines of VictoriaMetrics' /api/v1/export: a series with its points each.

    The names are those of Strimzi's reporter; a NaN is no point there.
    """
    name = "concat('kafka_server_', lower(resource), '_', attribute)"
    labels = _labels(name, "broker_id", "user", "client_id").alias("metric")
    points = exported_points(observations, quoted=False).where("not isnan(value)")
    in_order = "array_sort(collect_list(struct(unix_millis(ts) as at, value))) as points"
    return (
        points.groupBy(labels)
        .agg(F.expr(in_order))
        .selectExpr(
            "to_json(struct(metric, points.value as values, points.at as timestamps)) as value"
        )
    )


def prometheus_documents(observations: DataFrame) -> DataFrame:
    """Return what query_range answers for each metric and day, as (metric, dt, document)."""
    points = exported_points(observations)
    points = points.selectExpr("*", "to_date(ts) as dt", "client_id as clientId")
    labels = _labels("metric", "broker_id", "resource", "user", "clientId")
    value = """concat('[', unix_seconds(ts), ',"', cast(value as string), '"]')"""
    series = points.groupBy("metric", "dt", F.to_json(labels).alias("labels")).agg(
        F.expr(f"array_join(array_sort(collect_list({value})), ',') as values")
    )
    result = """concat('{"metric":', labels, ',"values":[', values, ']}')"""
    begin = """{"status":"success","data":{"resultType":"matrix","result":[\n"""
    documents = series.groupBy("metric", "dt").agg(
        F.expr(f"array_join(array_sort(collect_list({result})), ',\\n') as result")
    )
    return documents.select(
        "metric", "dt", F.concat(F.lit(begin), "result", F.lit("\n]}}")).alias("document")
    )


_ISO: Final = """date_format(ts, "yyyy-MM-dd'T'HH:mm:ss'Z'")"""


def adapter_lines(observations: DataFrame) -> DataFrame:
    """Return the records of prometheus-kafka-adapter: a sample each, its value as text."""
    labels = _labels("metric", "broker_id", "resource", "user", "client_id").alias("labels")
    record = F.struct(
        F.expr(f"{_ISO} as timestamp"),
        F.expr("cast(value as string) as value"),
        F.col("metric").alias("name"),
        labels,
    )
    return exported_points(observations).select(F.to_json(record).alias("value"))


def csv_rows(observations: DataFrame) -> DataFrame:
    """Return the columns of an exported CSV file, times as RFC 3339."""
    return tidy_points(observations).selectExpr(
        f"{_ISO} as ts",
        *("broker_id", "metric", "resource", "user", "client_id"),
        "cast(value as string) as value",
    )


def parquet_rows(observations: DataFrame) -> DataFrame:
    """Return tidy columns; half of the absent names are null, the others empty."""
    names = [
        f"if(pmod(xxhash64(ts, broker_id), 2) = 0, nullif({name}, ''), {name}) as {name}"
        for name in ("user", "client_id")
    ]
    points = tidy_points(observations)
    return points.selectExpr("ts", "broker_id", "metric", "resource", *names, "value")


def collected_rows(observations: DataFrame) -> DataFrame:
    """Return what ``collect`` writes, with one ``up`` for each scrape of each broker."""
    points = exported_points(observations).drop("attribute")
    scrapes = points.select("cluster_id", "ts", "broker_id").distinct()
    empty = ("'up' as metric", "'' as resource", "'' as user", "'' as client_id")
    return points.unionByName(scrapes.selectExpr("*", *empty, "1D as value"))


class _Shape(NamedTuple):
    """How a shape's rows become files.

    Attributes:
        format: As Spark's writers call it.
        order: What sorts the rows of a file: they are the same whatever the cores.
        folder: Below the shape's.
        partitions: Columns whose values have files of their own.
    """

    rows: Callable[[DataFrame], DataFrame]
    format: str
    order: tuple[str, ...]
    options: Mapping[str, str] = {}
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
