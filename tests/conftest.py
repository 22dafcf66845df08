"""What every test may ask for."""

import os
import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas by a call that Python 3.11 and 3.12 deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

pytest_plugins = ["tests.support.kafka", "tests.support.postgres", "tests.support.service"]

# Spark's own variables: a JVM that lives for seconds is done before its second compiler pays.
os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = "-XX:TieredStopAtLevel=1"
