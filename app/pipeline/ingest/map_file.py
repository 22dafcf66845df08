"""The file of ``--map``."""

import yaml

from app.pipeline.errors import UsageError
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.options import read_file


def load_map(file: str | None) -> MetricMap:
    """Read the file; without one nothing is mapped.

    Raises:
        UsageError: It is missing, no YAML, or says what nobody reads.
    """
    if file is None:
        return MetricMap()
    try:
        data = yaml.safe_load(read_file("--map", file))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = "" if mark is None else f" (line {mark.line + 1})"
        message = f"--map {file} is not YAML{line}."
        raise UsageError(message) from error
    return MetricMap.of({} if data is None else data, f"--map {file}")
