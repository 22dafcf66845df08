"""Folders of tables on disk: a run writes aside, then publishes everything in one go.

A run writes below ``_runs/<run id>``; publishing moves whole partitions into place. A publication
that was cut off is finished by the next run that writes to the folder; until then some partitions
may be the former ones. Runs that write to the same folder take turns.
"""

import fcntl
import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.lake import Partition, schema_of
from app.pipeline.tables import SCHEMA_VERSION, Table

_RUNS: Final = "_runs"
_JOURNAL: Final = "_publishing.json"
_LOCK: Final = "_lock"
_TURN: Final = "_turn"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}


def local_folder(uri: str) -> Path:
    """Return the folder that a path or ``file:`` URI names; all workers must see it there too.

    Raises:
        UsageError: It names something else.
    """
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return Path(uri.removeprefix("file:")).absolute()
    if scheme != "file":
        message = (
            f"{uri}: only folders can be used, which this machine and all workers see; mount it "
            "and give its path."
        )
        raise UsageError(message)
    return Path(unquote(rest)).absolute()


def places_of(uri: str) -> list[Path]:
    """Return the folder or file that a path or ``file:`` URI names, or those of its pattern.

    Raises:
        UsageError: It names something else than folders.
    """
    place = local_folder(uri)
    if place.exists():
        return [place]
    return list(Path(place.anchor).glob(str(place.relative_to(place.anchor))))


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files at any depth that may hold rows: names that begin with _ or . do not."""
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(("_", ".")) for part in parts):
            yield file


def has_table(folder: Path, table: Table) -> bool:
    """Tell whether a folder holds a published table."""
    finish_publication(folder)
    return (folder / table.name).is_dir()


def finish_publication(folder: Path) -> None:
    """Finish what a run that was cut off had begun to publish."""
    if (folder / _JOURNAL).exists():
        with _locked(folder):
            _finish(folder)


class RunFolder:
    """The folder that a run publishes to; nothing in it changes before ``publish``.

    Others wait for their turn until the run is discarded. Once it is published, they wait as long
    as this object lives: the same results may go to a database as well.

    Attributes:
        folder: Where the tables are.
    """

    def __init__(self, folder: Path, run_id: str, say: Callable[[str], None] | None = None) -> None:
        """Open the folder, or make it, once no other run writes to it.

        Args:
            folder: Where.
            run_id: Of the run.
            say: Told once where the run has to wait.

        Raises:
            InfrastructureError: It cannot be written.
        """
        self.folder = folder
        self._aside = folder / _RUNS / run_id
        self._places: dict[str, None] = {}
        self._published = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._end_turn = weakref.finalize(self, os.close, _turn_in(folder, say))
            finish_publication(folder)
            # Whatever stands aside is of runs that were killed.
            shutil.rmtree(folder / _RUNS, ignore_errors=True)
            self._aside.mkdir(parents=True)
        except OSError as error:
            message = f"{folder} cannot be written: {error.strerror}."
            raise InfrastructureError(message) from error

    def partitions(self, table: Table) -> list[Partition]:
        """Return the partitions of a table that were written or emptied."""
        below = f"{table.name}/"
        found = (path.removeprefix(below) for path in self._places if path.startswith(below))
        return [dict(_value(name) for name in path.split("/")) for path in found]

    def aside(self, table: Table) -> Path:
        """Return where the files of a table are written before they are published."""
        return self._aside / table.name

    def wrote(self, table: Table, replaces: Iterable[Partition] = ()) -> None:
        """Take note that the files of a table stand aside, complete.

        Args:
            table: Its rows replace those of the same partitions; without partition columns, all.
            replaces: Partitions that the run is about as well: without files they end empty.
        """
        (self.folder / table.name).mkdir(exist_ok=True)
        for place in self._moves(table, tuple(replaces)):
            self._places[place] = None

    def publish(self) -> None:
        """Put everything that was written in its place, and forget what it replaces."""
        with _locked(self.folder):
            journal = self.folder / _JOURNAL
            part = journal.with_suffix(".part")
            emptied = [place for place in self._places if not (self._aside / place).exists()]
            plan = {"run": self._aside.name, "places": list(self._places), "emptied": emptied}
            part.write_text(json.dumps(plan))
            part.replace(journal)
            _finish(self.folder)
        self._published = True

    def discard(self) -> None:
        """Forget what was written and not published; a publication that was begun is finished."""
        finish_publication(self.folder)
        shutil.rmtree(self._aside, ignore_errors=True)
        if not self._published:
            self._end_turn()

    def _moves(self, table: Table, replaces: Sequence[Partition]) -> Iterator[str]:
        if not table.partitions:
            yield table.name
            return
        aside = self._aside / table.name
        for path in sorted(aside.glob("/".join(f"{name}=*" for name in table.partitions))):
            yield f"{table.name}/{path.relative_to(aside)}"
        for replace in replaces:
            yield f"{table.name}/{partition_place(table, replace)}"


def write_table(
    frame: DataFrame, table: Table, run: RunFolder, *, replaces: Iterable[Partition] = ()
) -> None:
    """Write the rows of a table aside; ``run.publish`` puts them in their place.

    Args:
        frame: Has the columns of the table, in any order. Each task writes a file for each of its
            partitions, so spread the rows over the tasks as the files shall be.
        table: Its columns, types and layout.
        run: Where to.
        replaces: Partitions that this run is about: without rows they are empty afterwards.
    """
    schema = schema_of(table)
    typed = frame.select(*(frame[each.name].cast(each.dataType) for each in schema))
    stamped = typed.withMetadata(schema[0].name, {"schema_version": SCHEMA_VERSION})
    arranged = stamped.sortWithinPartitions(*table.partitions, *table.order)
    place = run.aside(table)
    arranged.write.mode("overwrite").partitionBy(*table.partitions).parquet(str(place))
    run.wrote(table, replaces)


def partition_place(table: Table, partition: Partition) -> str:
    """Return the folder of a partition below its table's, escaped as Spark does."""
    return "/".join(f"{name}={_escaped(partition[name])}" for name in table.partitions)


def _value(folder: str) -> tuple[str, str]:
    name, _, value = folder.partition("=")
    return name, unquote(value)


def _escaped(value: str) -> str:
    return "".join(f"%{ord(item):02X}" if item in _ESCAPED else item for item in value)


def _finish(folder: Path) -> None:
    journal = folder / _JOURNAL
    if not journal.exists():
        return
    plan = json.loads(journal.read_text())
    aside = folder / _RUNS / plan["run"]
    for place in plan["places"]:
        # Where there is nothing to move, it was moved before the cut, or is to end empty.
        if (aside / place).exists() or place in plan["emptied"]:
            shutil.rmtree(folder / place, ignore_errors=True)
        if (aside / place).exists():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (aside / place).rename(folder / place)
    shutil.rmtree(aside, ignore_errors=True)
    journal.unlink()


def _turn_in(folder: Path, say: Callable[[str], None] | None) -> int:
    """Wait until no other run writes to a folder; the turn ends where the descriptor is closed."""
    turn = os.open(folder / _TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if say is not None:
            say(f"waiting for another run that writes to {folder} ...")
        fcntl.flock(turn, fcntl.LOCK_EX)
    return turn


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time publish; the lock ends with the process."""
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
