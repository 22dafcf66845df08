"""A small world for the command, started in this process or as one of its own."""

from pathlib import Path

import pytest

from app.domain.quota_keys import QuotaKey
from app.pipeline.arrow_storage import write_arrow
from app.pipeline.folders import RunFolder
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from tests.pipeline.resolve.clusters import Version, observation, observation_table, quota_table

KEY = QuotaKey.CONSUMER_BYTE_RATE
ALICE = (("user", "alice"),)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with observations and quotas: alice's limit was raised after two minutes."""
    rows = [observation("c", KEY.value, at, user="alice", client_id="x") for at in range(4)]
    first = Version("c", ALICE, KEY, 10.0, 1, 2, "snapshot")
    quotas = [first, Version("c", ALICE, KEY, 20.0, 2, None)]
    run = RunFolder(tmp_path / "given", "one")
    write_arrow(observation_table(rows), OBSERVATION_MINUTE, run)
    write_arrow(quota_table(quotas), QUOTA_VERSION, run)
    run.publish()
    return tmp_path / "given"
