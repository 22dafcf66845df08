"""Make up observations and quotas: realistic ones, the same for the same seed.

``observation_minute`` and ``quota_version`` are written to ``--out``; with ``--shape`` the same
observations stand in ``OUT/SHAPE`` as well, as the tools of this world would have saved them: one
scrape a minute, 30 s into it. ``--from`` names the first day.
"""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame

from app.pipeline.errors import UsageError
from app.pipeline.folders import Partition, RunFolder
from app.pipeline.job import Job
from app.pipeline.sinks.result_tables import explain
from app.pipeline.storage import read_table, write_table
from app.pipeline.synth.formats import SHAPES, write_shape
from app.pipeline.synth.kafka_lines import KafkaTopic
from app.pipeline.synth.observations import observations
from app.pipeline.synth.plan import Plan
from app.pipeline.synth.quotas import quotas
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION, Table

_CLUSTER: Final = "synth"
_FIRST_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ALL: Final = "all"
_KAFKA: Final = "kafka-json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sizes and the shapes."""
    parser.add_argument("--seed", type=_seed, default=1, metavar="N", help="default 1")
    parser.add_argument(
        "--observations", type=_size, default=100_000, metavar="N", help="rows; default 100000"
    )
    parser.add_argument(
        "--entities", type=_size, default=1_000, metavar="N", help="with quotas; default 1000"
    )
    parser.add_argument(
        "--grain",
        choices=("bucket", "pair"),
        default="bucket",
        help="what the names are said to be; default bucket, as ingest says of metrics",
    )
    parser.add_argument(
        "--shape",
        action="append",
        choices=(*SHAPES, _ALL),
        default=[],
        help="write the observations in this shape too; may be repeated",
    )
    parser.add_argument(
        "--topic", metavar="URI", help=f"kafka://HOST:PORT/TOPIC: send the shape {_KAFKA} there"
    )


def run(job: Job) -> None:
    """Write the tables, replacing those of ``--out`` as a whole, then each shape.

    Raises:
        UsageError: An option is missing or wrong.
        InfrastructureError: Spark or the broker of ``--topic`` does not do its part.
    """
    plan, shapes, topic = _plan(job), _shapes(job), _topic(job)
    job.counts |= {"cluster_id": plan.cluster, "brokers": plan.brokers, "days": plan.days}
    job.counts |= {"observation_minute": plan.observations, "entities": plan.entities}
    if job.options.dry_run:
        job.counts["would_write"] = ["observation_minute", "quota_version", *shapes]
        return
    out = job.output()
    with job.spark() as session:
        # HotSpot does not compile methods above 8000 bytes; smaller ones are made instead.
        session.conf.set("spark.sql.codegen.hugeMethodLimit", "8000")
        _write(job, quotas(session, plan), QUOTA_VERSION, out)
        _write(job, observations(session, plan), OBSERVATION_MINUTE, out)
        out.publish()
        job.counts["quota_version"] = read_table(session, [out.folder], QUOTA_VERSION).count()
        written = read_table(session, [out.folder], OBSERVATION_MINUTE)
        for shape in shapes:
            job.say(f"writing the shape {shape} ...")
            job.counts[shape] = write_shape(shape, written, out.folder)
    if topic is not None:
        job.counts["sent"] = topic.send(out.folder / _KAFKA)


def _write(job: Job, rows: DataFrame, table: Table, out: RunFolder) -> None:
    explain(job, table, rows)
    write_table(rows, table, out, replaces=_present(out.folder, table))


def _present(folder: Path, table: Table) -> list[Partition]:
    """Return the partitions that a table has: those of an earlier run go."""
    places = (folder / table.name).glob("/".join(f"{name}=*" for name in table.partitions))
    return [
        {
            name: unquote(part.partition("=")[2])
            for name, part in zip(
                table.partitions, place.parts[-len(table.partitions) :], strict=True
            )
        }
        for place in places
    ]


def _topic(job: Job) -> KafkaTopic | None:
    if not job.options.topic:
        return None
    if _KAFKA not in _shapes(job):
        message = f"--topic is for --shape {_KAFKA}: add it, or leave --topic out."
        raise UsageError(message)
    return KafkaTopic.of(job.options.topic)


def _plan(job: Job) -> Plan:
    given = job.options
    start = given.since or _FIRST_DAY
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    return Plan(
        seed=given.seed,
        observations=given.observations,
        entities=given.entities,
        cluster=given.cluster or _CLUSTER,
        start=midnight,
        grain=given.grain,
    )


def _shapes(job: Job) -> list[str]:
    wanted = set(job.options.shape)
    return [shape for shape in SHAPES if shape in wanted or _ALL in wanted]


def _seed(text: str) -> int:
    return _bounded(text, -(2**63), 2**63 - 1)


def _size(text: str) -> int:
    return _bounded(text, 1, 10**11)


def _bounded(text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = most + 1
    if not least <= number <= most:
        message = f"{text!r} is not a whole number from {least} to {most}"
        raise argparse.ArgumentTypeError(message)
    return number
