"""Every format is read by Spark."""

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def session(spark: SparkSession) -> SparkSession:
    """The Spark of all tests is the active one."""
    return spark
