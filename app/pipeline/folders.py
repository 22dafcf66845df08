"""The folders of tables: which there are, and reading them again where another run replaces them.

A folder is named by the partitions of its table, as Spark's writer does; a table that has revisions
has them as its last level.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.utils import is_remote

from app.pipeline.errors import UsageError
from app.pipeline.tables import REVISION, Table

_UNLIKE: Final = re.compile(r"[^A-Za-z0-9._-]+")
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What a query fails of: PySpark hands over errors of Java for which it has no class."""

FILE_IS_GONE: Final = "FAILED_READ_FILE.FILE_NOT_EXIST"
"""Spark's condition where another run replaces a file that was listed."""

_ATTEMPTS: Final = 100
ABSENT: Final = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")
_FOLDER_IS_GONE: Final = "java.io.FileNotFoundException"
"""Of Hadoop, which has no conditions: another run replaced a folder while it was listed."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILE: Final = "file:"
_OTHER_FOLDERS: Final = ("CONFLICTING_PARTITION_COLUMN_NAMES", "CONFLICTING_DIRECTORY_STRUCTURES")

Result = TypeVar("Result")


def retried(work: Callable[[], Result], traces: Sequence[str] = (FILE_IS_GONE,)) -> Result:
    """Do something, anew where another run replaces what it reads meanwhile.

    Args:
        traces: What errors say of it: for most PySpark has no class, and so no condition.

    Raises:
        Exception: What the work raises otherwise, or at last.
    """
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except SPARK_ERRORS as error:
            if not any(trace in str(error) for trace in traces):
                raise
    return work()


def looked_again(look: Callable[[], Result], nothing: Result) -> Result:
    """Look into a folder of this machine, anew where another run replaces it meanwhile.

    Returns:
        What was found; nothing where the folder is not there.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return look()
    return nothing


def folder_patterns(table: Table, partitions: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield a pattern of folders for each cluster: of its days, and of the hours of any of them."""
    of_cluster: dict[str, tuple[set[str], set[str]]] = {}
    for item in partitions:
        days, hours = of_cluster.setdefault(item.get("cluster_id", ""), (set(), set()))
        days |= {item["dt"]} if "dt" in item else set()
        hours |= {item["hour"]} if "hour" in item else set()
    for cluster, (days, hours) in sorted(of_cluster.items()):
        # Writers differ in what they escape: rows and files of others are left out by their values.
        levels = [f"cluster_id={_UNLIKE.sub('*', cluster) or '*'}"]
        if days and "dt" in table.partitions:
            levels.append(f"dt={{{','.join(sorted(days))}}}")
            if hours and "hour" in table.partitions:
                levels.append(f"hour={{{','.join(sorted(hours))}}}")
        yield "/".join(levels)


def list_files(reader: DataFrameReader, path: str) -> DataFrame:
    """Return what is below a path, anew where another run replaces a folder meanwhile.

    Raises:
        UsageError: An earlier version wrote it, whose folders are others.
    """

    def listed() -> DataFrame:
        rows = reader.parquet(path)
        rows.schema  # noqa: B018 - Spark Connect looks for it here
        return rows

    try:
        return retried(listed, [_FOLDER_IS_GONE])
    except SPARK_ERRORS as error:
        if not any(trace in str(error) for trace in _OTHER_FOLDERS):
            raise
        raise of_an_earlier_version(path) from error


def of_an_earlier_version(path: str) -> UsageError:
    """Say that a table has folders that no run of this version writes."""
    return UsageError(
        f"{path} has folders of an earlier version: name another --out, or remove the table, "
        "which `utilization` and `incidents` write anew."
    )


def newest_revisions(rows: DataFrame, table: Table) -> DataFrame:
    """Leave out the revisions of a day that a newer one has taken the place of."""
    if not table.has_revisions or REVISION not in rows.columns:
        return rows
    newest: dict[tuple[str, ...], str] = {}
    for file in files_behind(rows):
        *day, revision = values_of(file, (*table.partitions, REVISION)).values()
        newest[*day,] = max(revision, newest.get((*day,), ""))
    position = sf.concat_ws("/", *table.partitions, REVISION)
    return rows.where(position.isin(["/".join((*day, last)) for day, last in newest.items()]))


def files_behind(rows: DataFrame) -> set[str]:
    """Return the files of a table as Hadoop calls them, with escaped partition values."""
    return {unquote(file) for file in rows.inputFiles()}


def files_of(session: SparkSession, uris: Sequence[str]) -> list[tuple[str, int, str]]:
    """Return the path, size in bytes and time of change (UTC) of all files below, in order.

    What is not there has none; names that begin with _ or . hold no rows.
    """
    found: set[tuple[str, int, str]] = set()
    changed = sf.col("modificationTime").cast("string")
    for uri in uris:
        here = folder_here(session, uri)
        if here and here.is_dir():
            found |= set(_statuses(here))
            continue
        reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            # Spark Connect looks for the folder when rows are asked for.
            files = reader.load(uri).select("path", "length", changed).collect()
        except AnalysisException as error:
            if error.getCondition() in ABSENT:
                continue
            raise
        found |= {(row[0], row[1], row[2]) for row in files}
    return sorted(found)


def _statuses(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Yield of each file below what Hadoop says of it; another run may replace any."""
    with suppress(FileNotFoundError):
        for path in visible(folder):
            if path.is_dir():
                yield from _statuses(path)
                continue
            status = path.stat()
            seconds, millis = divmod(status.st_mtime_ns // 1_000_000, 1_000)
            time = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
            yield f"{_FILE}{path}", status.st_size, f"{time}.{millis:03}".rstrip("0").rstrip(".")


def visible(folder: Path) -> list[Path]:
    """Return what is in a folder, in order; names that begin with _ or . hold no rows."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "_.")


def listed_here(
    folder: Path, columns: Sequence[str], within: Sequence[Mapping[str, str]] | None
) -> dict[Path, dict[str, str]]:
    """Return what is in the folders of partitions below one of this machine, with their values.

    Args:
        columns: That name the levels of folders.
        within: Values of columns; folders of a value that none of them has are not listed.
    """
    return looked_again(lambda: dict(_listed(folder, columns, within, {})), {})


def _listed(
    folder: Path,
    columns: Sequence[str],
    within: Sequence[Mapping[str, str]] | None,
    above: dict[str, str],
) -> Iterator[tuple[Path, dict[str, str]]]:
    if not columns:
        yield from ((path, above) for path in visible(folder))
        return
    name, *below = columns
    wanted = None if within is None else {item.get(name) for item in within}
    for path in visible(folder):
        level, _, text = path.name.partition("=")
        value = unquote(text)
        if level == name and (wanted is None or wanted & {value, None}):
            yield from _listed(path, below, within, {**above, name: value})


def folder_here(session: SparkSession, uri: str) -> Path | None:
    """Return the folder of a URI that this process reaches by itself; null of other file systems.

    A URI without a scheme is on Hadoop's default file system.
    """
    if is_remote():
        return None
    if uri.startswith(_FILE):
        return Path("/" + uri.removeprefix(_FILE).lstrip("/"))
    spark: Any = session
    settings = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - PySpark shows no setting of Hadoop
    if _SCHEME.match(uri) or not str(settings.get("fs.defaultFS")).startswith(_FILE):
        return None
    return Path(uri).absolute()


def folder_of(file: str) -> str:
    """Return the folder that a file is in."""
    return file.rpartition("/")[0]


def values_of(file: str, columns: Sequence[str]) -> Mapping[str, str]:
    """Read ``…/cluster_id=…/dt=…/part-…`` as Spark writes it."""
    named = (item.partition("=") for item in folder_of(file).split("/") if "=" in item)
    found = {name: unquote(value) for name, _, value in named}
    return {name: found[name] for name in columns if name in found}
