"""What a task of Spark failed of, in a sentence for people."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from app.pipeline.errors import InfrastructureError


@contextmanager
def failures_told() -> Iterator[None]:
    """Say in a sentence what a task or Spark itself failed of.

    Raises:
        InfrastructureError: It did.
    """
    try:
        yield
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if "app.pipeline.errors." in line]
        message = (told or lines)[-1 if told else 0].rpartition("app.pipeline.errors.")[2]
        raise InfrastructureError(message) from error
