"""What a task of Spark failed of, in a sentence for people."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from app.pipeline import errors
from app.pipeline.errors import InfrastructureError, PipelineError

_TRACEBACK: Final = "Traceback (most recent call last):"
_OURS: Final = re.compile(r"app\.pipeline\.errors\.(\w+): (.+)")
_OF_SPARK: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(: .+)?")


@contextmanager
def spark_failures() -> Iterator[None]:
    """Say in a sentence what a task or Spark itself failed of.

    Raises:
        PipelineError: The one that a task raised.
        InfrastructureError: It failed of anything else.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _error_of(str(error)) from error


def _error_of(text: str) -> PipelineError:
    ours = _OURS.findall(text)
    if not ours:
        return InfrastructureError(_sentence(text))
    name, sentence = ours[-1]
    kind: type[PipelineError] = getattr(errors, name)
    return kind(sentence.strip())


def _sentence(text: str) -> str:
    """Return what Python raised in a task, else Spark's own words."""
    if _TRACEBACK in text:
        # Below the indented lines of the stack stands what was raised.
        below = text.rpartition(_TRACEBACK)[2].splitlines()
        raised = [line for line in below if _RAISED.fullmatch(line)]
        if raised:
            return f"A task failed: {raised[0]}"
    condition = _OF_SPARK.search(text)
    if condition:
        return f"Spark failed: {condition.group()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"Spark failed: {lines[0] if lines else 'it does not say why'}"
