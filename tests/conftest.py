"""What every test may ask for."""

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas by a call that Python 3.11 and 3.12 deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

pytest_plugins = ["tests.support.kafka", "tests.support.postgres", "tests.support.service"]
