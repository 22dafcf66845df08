"""The HTTP interface on fakes, and its metrics."""

import pytest
from structlog.testing import capture_logs

from app.http.metrics import HttpMetrics
from tests.unit.http.fake_service import FakeService


@pytest.fixture
def service() -> FakeService:
    """The whole interface on fakes; its start logs nothing."""
    with capture_logs():
        return FakeService()


@pytest.fixture
def metrics() -> HttpMetrics:
    return HttpMetrics()
