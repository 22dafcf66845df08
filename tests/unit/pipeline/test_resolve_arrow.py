"""What a task finds for names and hours is what the domain finds, at any time; without Spark."""

from datetime import timedelta
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis.strategies import DrawFn, booleans, composite, integers, lists, sampled_from

from app.pipeline.hashes import hash_texts
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.series import decide, doubled_id, limits_and_buckets, resolve
from app.pipeline.resolve.versions import Versions
from app.pipeline.tables import DIM_BUCKET, SERIES, SERIES_LIMIT
from tests.pipeline.resolve.clusters import (
    ENTITIES,
    KEYS,
    Version,
    held_at,
    index_of,
    judged,
    minute,
    observation,
    observation_table,
    quota_table,
    seen_first,
)
from tests.testkit.bucket_worlds import arrow_schema

FEW = settings(deadline=None, max_examples=25)
NAMES = ("a", "b", "z", "<default>", "")
CALLERS = tuple(product(NAMES, NAMES))
SERIES_OF_HOUR = tuple(product(CALLERS, KEYS))
HOUR = 60
AT = (-30, 0, 7, 20, 59)
CLUSTER = "c"

World = list[Version]


@composite
def worlds(draw: DrawFn) -> World:
    """Return values that come, change and go before, in and after the hour of the series."""
    found: World = []
    for entity in draw(lists(sampled_from(ENTITIES), max_size=7, unique=True)):
        of_entity: World = []
        for key in KEYS:
            ends = draw(lists(integers(-40, 70), max_size=4, unique=True))
            cuts: list[int | None] = [*sorted(ends), None]
            for since, until in pairwise(cuts):
                value = float(draw(integers(1, 3)))
                if since is not None and draw(integers(0, 3)):
                    of_entity.append(Version(CLUSTER, entity, key, value, since, until))
        found += seen_first(of_entity) if draw(booleans()) else of_entity
    return found


def answers(rows: pa.Table) -> list[tuple[Any, ...]]:
    names = ("level", "limit", "bucket_user", "bucket_client")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def callers(at: int) -> list[dict[str, Any]]:
    return [
        observation(CLUSTER, key.value, at, user=user, client_id=client)
        for user, client in CALLERS
        for key in KEYS
    ]


def expected(versions: World) -> list[tuple[Any, ...]]:
    index = index_of(versions)
    return [judged(index, key.value, *caller) for caller in CALLERS for key in KEYS]


@FEW
@given(worlds())
def test_names_have_the_limit_of_the_domain_now_and_at_any_time(world: World):
    stored = quota_table(world)
    now = resolve(observation_table(callers(0)), LookUp.of(Versions.latest(stored)))
    assert answers(now) == expected([version for version in world if version.until is None])
    history = LookUp.of(Versions.in_history(stored))
    for at in AT:
        found = resolve(observation_table(callers(at)), history)
        assert answers(found) == expected(held_at(world, at))


@FEW
@given(worlds())
def test_an_hour_is_cut_where_a_limit_changes_and_every_share_finds_the_same(world: World):
    versions = Versions.in_history(quota_table(world))
    series = series_of_hour()
    decided = decide(series, LookUp.of(versions)).to_pylist()
    for number, (caller, key) in enumerate(SERIES_OF_HOUR):
        spans = sorted(
            (row for row in decided if row["series_id"] == number),
            key=lambda row: row["valid_from"],
        )
        edges = [spans[0]["valid_from"], *(row["valid_to"] for row in spans)]
        assert edges == [*(row["valid_from"] for row in spans), minute(HOUR)]
        assert edges[0] == minute(0)
        for row in spans:
            first = (row["valid_from"] - minute(0)) // timedelta(minutes=1)
            last = (row["valid_to"] - minute(0)) // timedelta(minutes=1) - 1
            for at in (first, last):
                limit = judged(index_of(held_at(world, at)), key.value, *caller)
                assert answers(pa.Table.from_pylist([row])) == [limit]
    shares = LookUp.shares(versions, 2)
    share_of = (hash_texts(pa.array(NAMES)) % len(shares)).tolist()
    for number, look_up in enumerate(shares):
        users = [name for name, share in zip(NAMES, share_of, strict=True) if share == number]
        found = decide(series, look_up).to_pylist()
        assert rows_of(users, found) == rows_of(users, decided)


def rows_of(users: list[str], decided: list[dict[str, Any]]) -> list[dict[str, Any]]:
    chosen = {number for number, ((user, _), _) in enumerate(SERIES_OF_HOUR) if user in users}
    return [row for row in decided if row["series_id"] in chosen]


def series_of_hour() -> pa.Table:
    rows = [
        {
            **dict.fromkeys(SERIES.columns),
            "cluster_id": CLUSTER,
            "dt": minute(0).date(),
            "hour": minute(0).hour,
            "series_id": number,
            "key": key.value,
            "user": user,
            "client_id": client,
            "first_seen": minute(0),
            "last_seen": minute(HOUR - 1),
        }
        for number, ((user, client), key) in enumerate(SERIES_OF_HOUR)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(SERIES))


def test_each_series_is_of_one_bucket_and_no_hour_needs_quotas():
    decided = decide(series_of_hour(), LookUp.of(Versions.latest(quota_table([]))))
    found = limits_and_buckets(decided)
    limits = found[SERIES_LIMIT.name].to_pylist()
    assert {(row["level"], row["limit"]) for row in limits} == {(0, None)}
    buckets = found[DIM_BUCKET.name].to_pylist()
    assert {row["bucket_id"] for row in buckets} == {row["bucket_id"] for row in limits}
    assert {row["bucket_client"] for row in buckets} == set(NAMES)
    number = len(CALLERS) * len(KEYS)
    assert found["decided"].to_pylist() == [
        {"cluster_id": CLUSTER, "rows": number, "unlimited": number}
    ]


def test_an_id_of_different_buckets_is_found_in_whichever_tasks_they_are():
    decided = decide(series_of_hour(), LookUp.of(Versions.latest(quota_table([]))))
    ids = limits_and_buckets(decided)["ids"]
    assert doubled_id(pa.concat_tables([ids, ids])) is None
    same = ids.set_column(0, "bucket_id", pa.array([7] * len(ids)))
    assert doubled_id(same) == 7
    assert doubled_id(pa.concat_tables([same[:1], same[1:2]])) == 7
