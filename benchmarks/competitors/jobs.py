"""The job of a peer and its result: one line of JSON each.

A job is ``{"do": "alter", "entities": [names], "values": {key: number}}``, every entity in one
request, or ``{"do": "describe"}``, which asks for everything. The result is ``{"ms", "entities"}``,
or ``{"error"}``. The milliseconds are those of the client's call, from the library's own objects to
its own objects: neither the reading of the line nor the building of the objects counts.
"""

import json
from typing import NamedTuple

from benchmarks.errors import BenchmarkError
from benchmarks.workload import Entities

DESCRIBE = json.dumps({"do": "describe"})


class Result(NamedTuple):
    """What a call took, and how many entities were altered or described."""

    ms: float
    entities: int


def alter_job(entities: Entities, value: int) -> str:
    """Return the job that sets each key of each entity."""
    names = [entities.names(index) for index in range(entities.count)]
    values = dict.fromkeys(entities.keys, value)
    return json.dumps({"do": "alter", "entities": names, "values": values})


def read_result(peer: str, line: str) -> Result:
    """Read a result.

    Raises:
        BenchmarkError: The peer failed, or ended without one.
    """
    try:
        result = json.loads(line)
        return Result(float(result["ms"]), int(result["entities"]))
    except (ValueError, TypeError, KeyError) as error:
        raise BenchmarkError(f"{peer} has failed: {line.strip() or 'it ended'}") from error
