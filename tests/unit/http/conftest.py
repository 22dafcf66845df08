"""The HTTP interface on fakes."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.unit.http.fake_service import FakeService


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    """Keep log lines from being formatted: a traceback for people takes a second."""
    with capture_logs():
        yield


@pytest.fixture
def service() -> FakeService:
    """The whole interface on fakes."""
    return FakeService()
