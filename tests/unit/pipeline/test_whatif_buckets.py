"""Which buckets an alteration touches, and what is clear of their members; without Spark."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.pipeline.quota_history import entity_columns
from app.pipeline.tables import QUOTA_VERSION, SERIES
from app.pipeline.whatif.buckets import Touched, find_touched
from tests.testkit.bucket_worlds import arrow_schema

KEY = "producer_byte_rate"
Values = Mapping[tuple[str, str], float]
"""By user and client-id; an empty name is absent."""


def quotas_of(values: Values) -> Quotas:
    return {
        ClientQuotaEntity.of(
            {kind: name for kind, name in (("user", user), ("client-id", client_id)) if name}
        ): {KEY: value}
        for (user, client_id), value in values.items()
    }


def touched(seen: Sequence[tuple[str, str, str]], before: Values, after: Values) -> Touched:
    """Find what is touched of series with these users, client-ids and grains."""
    series = [
        {"cluster_id": "c1", "series_id": number, "key": KEY, "user": user, "client_id": client_id}
        | {"grain": grain}
        for number, (user, client_id, grain) in enumerate(seen)
    ]
    quotas = [quotas_of(before), quotas_of(after)]
    versions = [
        [
            {"cluster_id": "c1", "key": key, "value": value, **entity_columns(entity)}
            for entity, values in each.items()
            for key, value in values.items()
        ]
        for each in quotas
    ]
    tables = [pa.Table.from_pylist(rows, arrow_schema(QUOTA_VERSION)) for rows in versions]
    columns = ("cluster_id", "series_id", "key", "user", "client_id", "grain")
    schema = pa.schema([arrow_schema(SERIES).field(name) for name in columns])
    return find_touched(pa.Table.from_pylist(series, schema), tables, quotas)


def by_bucket(found: Touched) -> dict[tuple[str, str], dict[str, Any]]:
    rows = found.buckets.to_pylist()
    return {(row["bucket_user"], row["bucket_client"]): row for row in rows}


def test_who_leaves_a_bucket_is_a_member_of_both():
    found = touched(
        [("a", "x", "pair"), ("a", "y", "pair"), ("b", "x", "pair")],
        {("a", ""): 10.0, ("b", ""): 10.0},
        {("a", ""): 10.0, ("b", ""): 10.0, ("a", "x"): 5.0},
    )
    names = {row["bucket_id"]: name for name, row in by_bucket(found).items()}
    members = {
        (names[row["bucket_id"]], row["series_id"]): (row["in_now"], row["in_new"])
        for row in found.members.to_pylist()
    }
    assert members == {
        (("a", ""), 0): (True, False),
        (("a", ""), 1): (True, True),
        (("a", "x"), 0): (False, True),
    }
    own = by_bucket(found)["a", "x"]
    assert (own["limit_now"], own["limit_new"], own["level_new"]) == (10.0, 5.0, 1)
    # Before, it shared another bucket.
    assert (own["knows_now"], own["knows_new"], own["fidelity"]) == (False, True, "exact")


def test_nothing_is_claimed_of_a_sum_that_is_split():
    found = touched([("a", "", "bucket")], {("a", ""): 10.0}, {("a", ""): 10.0, ("a", "x"): 5.0})
    (row,) = found.buckets.to_pylist()
    assert (row["limit_now"], row["limit_new"], row["level_new"]) == (10.0, None, None)
    assert (row["knows_now"], row["knows_new"], row["fidelity"]) == (True, False, "indeterminate")


def test_the_same_quotas_touch_nothing():
    values = {("a", ""): 10.0, ("", "x"): 3.0}
    found = touched([("a", "x", "pair"), ("b", "x", "pair")], values, values)
    assert (found.members.num_rows, found.buckets.num_rows) == (0, 0)
    nobody = touched([], values, {})
    assert (nobody.members.num_rows, nobody.buckets.num_rows) == (0, 0)
