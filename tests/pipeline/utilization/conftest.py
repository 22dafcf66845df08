"""A small world for the command, started in this process or as one of its own."""

from pathlib import Path

import pytest

from app.pipeline.tables import BUCKET_MINUTE, DIM_BUCKET
from tests.testkit.bucket_worlds import bucket, minute, publish


@pytest.fixture
def world(tmp_path: Path) -> Path:
    rows = [minute(number, rate_max=60.0 + number) for number in (0, 50, 1440)]
    rows.append(minute(5, cluster_id="c2"))
    return publish(tmp_path / "in", {BUCKET_MINUTE: rows, DIM_BUCKET: [bucket()]})
