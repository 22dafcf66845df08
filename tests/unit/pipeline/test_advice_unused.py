"""The rules of stale values for columns find the same as those for one value."""

from collections.abc import Collection
from datetime import timedelta

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis.strategies import booleans, builds, integers, just, lists, one_of, sampled_from

from app.domain.entities import ClientQuotaEntity
from app.domain.stale_quotas import Seen, StaleRules, stale_values
from app.pipeline.advice.stale import ClusterColumns
from tests.unit.domain.test_stale_quotas import CLIENTS, ENTITIES, NOW, USERS, C, P, Stored

KEYS = (P, C)
VALUES = lists(
    builds(
        lambda entity, key, value: (entity, key, value),
        ENTITIES,
        sampled_from(KEYS),
        sampled_from([1.0, 2.0]),
    ),
    max_size=12,
    unique_by=lambda each: each[:2],
)
SEEN = lists(
    builds(
        Seen,
        key=sampled_from(KEYS),
        user=sampled_from(USERS),
        client_id=sampled_from(CLIENTS),
        is_pair=booleans(),
        level=integers(0, 8),
        last=integers(0, 3).map(lambda minutes: NOW + timedelta(minutes=minutes)),
    ),
    max_size=10,
)
INVENTORIES = one_of(just(None), sampled_from([frozenset(), frozenset({"alice"})]))


def columns_of(
    stored: Stored, seen: list[Seen], inventory: Collection[str] | None
) -> tuple[ClusterColumns, int]:
    rows = [
        {
            "user": names.get("user") or "",
            "user_default": names.get("user", "") is None,
            "client_id": names.get("client-id") or "",
            "client_default": names.get("client-id", "") is None,
            "key": key,
            "value": value,
        }
        for entity, values in stored.items()
        for names in [entity.as_dict()]
        for key, value in values.items()
    ]
    versions = {
        "user": pa.string(),
        "user_default": pa.bool_(),
        "client_id": pa.string(),
        "client_default": pa.bool_(),
        "key": pa.string(),
        "value": pa.float64(),
    }
    callers = {
        "key": pa.string(),
        "user": pa.string(),
        "client_id": pa.string(),
        "is_pair": pa.bool_(),
        "level": pa.int64(),
        "last": pa.timestamp("us", "UTC"),
    }
    return ClusterColumns(
        pa.Table.from_pylist(rows, pa.schema(versions)),
        pa.Table.from_pylist([each._asdict() for each in seen], pa.schema(callers)),
        inventory,
    ), len(rows)


@given(VALUES, SEEN, INVENTORIES, booleans(), booleans())
@settings(deadline=None)
def test_columns_are_judged_as_values_are(
    values: list[tuple[ClientQuotaEntity, str, float]],
    seen: list[Seen],
    inventory: Collection[str] | None,
    is_long: bool,
    is_recent: bool,
):
    stored: dict[ClientQuotaEntity, dict[str, float]] = {}
    for entity, key, value in values:
        stored.setdefault(entity, {})[key] = value
    recent = [(entity, key) for entity, key, _ in values[:1] if is_recent]
    expected = stale_values(stored, seen, StaleRules(30, is_long, inventory, recent))
    columns, number = columns_of(stored, seen, inventory)
    is_young = np.arange(number) < int(is_recent)
    found = columns.stale_values(30, is_long=is_long, is_recent=is_young)
    assert sorted(found, key=lambda each: (each.entity.sort_key(), each.key)) == list(expected)
