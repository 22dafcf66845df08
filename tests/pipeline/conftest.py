from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from app.pipeline.spark import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests: it takes seconds to start."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    with spark_session("tests", master="local[2]", settings=settings) as session:
        yield session
