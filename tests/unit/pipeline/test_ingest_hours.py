"""Points of hours are named, counted and summed up by numpy."""

import numpy as np
import pyarrow as pa
import pytest

from app.pipeline.errors import UsageError
from app.pipeline.ingest.series_names import SeriesNames


def names(ids: list[int]) -> SeriesNames:
    texts = {"key": ["k", "k"], "user": ["b", "a"], "client_id": ["", ""]}
    arrays = {name: pa.array(values) for name, values in texts.items()}
    return SeriesNames(np.array(ids), np.zeros(2, np.int64), pa.array(["c"]), arrays)


def test_series_with_the_same_id_stop_the_run():
    names([1, 2]).require_own_ids()
    with pytest.raises(
        UsageError, match=r"'k', 'a', ''.* and .*'k', 'b', ''.* have the same serie"
    ):
        names([7, 7]).require_own_ids()
