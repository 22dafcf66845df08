"""Points of hours are named, counted and summed up by numpy."""

import pyarrow as pa
import pytest

from app.pipeline.errors import UsageError
from app.pipeline.ingest.hours import require_own_ids


def names(ids: list[int]) -> pa.RecordBatch:
    texts = {"cluster_id": ["c", "c"], "key": ["k", "k"], "user": ["b", "a"], "client_id": ["", ""]}
    return pa.record_batch({**texts, "series_id": ids})


def test_series_with_the_same_id_stop_the_run():
    require_own_ids(names([1, 2]))
    with pytest.raises(
        UsageError, match=r"'k', 'a', ''.* and .*'k', 'b', ''.* have the same serie"
    ):
        require_own_ids(names([7, 7]))
