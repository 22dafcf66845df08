"""What every test may ask for."""

import os
import sys
import warnings

import pytest
from hypothesis import HealthCheck, settings

from tests.testkit.sizes import LONG, SHORT, SIZE, size

with warnings.catch_warnings():
    # kafka-python reads its schemas by a call that Python 3.11 and 3.12 deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

# jsonschema imports it for formats that no test checks, and it takes a second to build its parsers.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# How long an example takes says how busy the machine is, and nothing of the code. `make test` has
# the same examples each time, so that one commit either passes or does not; `make faults` looks for
# others.
settings.register_profile(
    SHORT,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=25,
    derandomize=True,
)
settings.register_profile(
    LONG, settings.get_profile(SHORT), max_examples=1000, derandomize=False, print_blob=True
)
settings.load_profile(SIZE)

pytest_plugins = ["tests.testkit.groups", "tests.testkit.report"]
FIXTURES = ("tests.testkit.postgres", "tests.testkit.service", "tests.testkit.kafka")
pytest.register_assert_rewrite(*FIXTURES)


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which import all of the service, unless workers run the tests."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        for name in FIXTURES:
            config.pluginmanager.import_plugin(name)


# Spark's own variables: a JVM that runs for seconds is done before its second compiler pays. Java
# then reserves a fifth of the memory for compiled code, which Spark fills. To verify the classes
# of Spark, which come from a locked package, is a fifth of a start. Tables of ten rows are read
# before the code for them is compiled, so only the long run lets Spark generate it.
_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
    ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m", _UNVERIFIED, size(_INTERPRETED, ""))
)
os.environ["SPARK_LAUNCHER_OPTS"] = "-XX:TieredStopAtLevel=1"
