"""What a task of ``resolve`` does where one task can hold each day: read, sum up and write it.

No row travels then: only the answers for names come to the task.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from app.pipeline.jobs.resolve_members import Members
from app.pipeline.jobs.resolve_tasks import Task


@dataclass(frozen=True)
class OfDays:
    """Does the work of ``Members`` and ``Task`` at once.

    Attributes:
        members: Finds the rows of the names.
        sums: Sums them up and writes them.
    """

    members: Members
    sums: Task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task: all pieces of the days of a part."""
        parts: Mapping[int, list[pa.Table]] = defaultdict(list)
        for members, place in self.members.of_pieces(batches):
            parts[self.members.shares.places[place][0]].append(members)
        for number, tables in sorted(parts.items()):
            yield self.sums.told(tables, number)
