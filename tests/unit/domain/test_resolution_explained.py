"""What a resolution says beside the value: unit, scope, identity, levels, notes, odd names."""

from math import inf, nan

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey, Scope
from app.domain.resolution import (
    IP_PRECEDENCE,
    PRECEDENCE,
    Bucket,
    QuotaIndex,
    applicable_levels,
    resolve_client,
)

P, C = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
R, M = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
EMPTY = QuotaIndex.of({})

Names = dict[str, str | None]


def stored(*rules: tuple[Names, dict[str, float]]) -> QuotaIndex:
    return QuotaIndex.of({ClientQuotaEntity.of(names): values for names, values in rules})


def test_the_tables_have_the_levels_and_names_of_the_contract() -> None:
    assert [(row.level, row.source.value) for row in PRECEDENCE] == [
        (1, "user-client-id"),
        (2, "user-default-client-id"),
        (3, "user"),
        (4, "default-user-client-id"),
        (5, "default-user-default-client-id"),
        (6, "default-user"),
        (7, "client-id"),
        (8, "default-client-id"),
    ]
    assert [(row.level, row.source.value) for row in IP_PRECEDENCE] == [
        (1, "ip"),
        (2, "default-ip"),
    ]


def test_every_key_of_a_client_is_answered_with_its_unit_and_scope() -> None:
    quotas = resolve_client(EMPTY, "alice", "etl").quotas
    assert {key: (quota.key, quota.unit, quota.scope) for key, quota in quotas.items()} == {
        P: (P, "bytes/s", Scope.PER_BROKER),
        C: (C, "bytes/s", Scope.PER_BROKER),
        R: (R, "percent", Scope.PER_BROKER),
        M: (M, "partitions/s", Scope.CLUSTER),
    }


def test_nothing_stored_is_unlimited_in_the_bucket_of_the_client_id() -> None:
    resolution = resolve_client(EMPTY, "alice", "etl")
    assert set(resolution.quotas) == {P, C, R, M}
    for quota in resolution.quotas.values():
        assert (quota.value, quota.source, quota.overridden, quota.levels) == (None, None, (), ())
        assert quota.shared_by == {"user": "", "client-id": "etl"}
    assert resolution.notes == ()


def test_an_empty_client_id_is_left_out_of_the_identity() -> None:
    assert resolve_client(EMPTY, "alice", "etl").identity == {"user": "alice", "client-id": "etl"}
    for missing in ("", None):
        assert resolve_client(EMPTY, "alice", missing).identity == {"user": "alice"}
    assert resolve_client(EMPTY, "", "etl").identity == {"user": "", "client-id": "etl"}


def test_keys_come_from_different_levels() -> None:
    index = stored(({"user": "alice"}, {P: 10, "future_key": 1}), ({"user": None}, {P: 1, C: 2}))
    quotas = resolve_client(index, "alice", "etl").quotas
    levels = {key: quota.source.level for key, quota in quotas.items() if quota.source}
    assert levels == {P: 3, C: 6}


def test_the_name_default_in_brackets_is_an_ordinary_name() -> None:
    index = stored(({"user": "<default>"}, {P: 5}), ({"user": None}, {P: 6}))
    assert resolve_client(index, "alice", "x").quotas[P].value == 6
    assert resolve_client(index, "<default>", "x").quotas[P].value == 5


@pytest.mark.parametrize(
    ("caller", "applying"),
    [
        (("u", "c"), {1, 2, 3, 4, 5, 6, 7, 8}),
        (("u", ""), {3, 6}),
        (("", "c"), {7, 8}),
        (("", ""), set()),
    ],
)
def test_a_level_that_can_never_apply_is_explained_with_a_reason(
    caller: tuple[str, str], applying: set[int]
) -> None:
    levels = resolve_client(EMPTY, *caller, explain=True).quotas[P].levels
    assert {tried.level for tried in levels if tried.applies} == applying
    assert {tried.level for tried in levels if tried.reason is None} == applying
    assert applicable_levels(*caller) == applying


def test_levels_name_the_entities_that_were_looked_up() -> None:
    levels = (
        resolve_client(stored(({"user": None}, {P: 6})), "u", "c", explain=True).quotas[P].levels
    )
    assert [tried.entity.as_dict() for tried in levels] == [
        {"client-id": "c", "user": "u"},
        {"client-id": None, "user": "u"},
        {"user": "u"},
        {"client-id": "c", "user": None},
        {"client-id": None, "user": None},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
    ]
    assert [tried.value for tried in levels] == [None, None, None, None, None, 6, None, None]
    assert [tried.name for tried in levels] == [row.source for row in PRECEDENCE]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (P, 9223372036854775808.0, "does not limit"),
        (C, 9223372036854775808.0, "does not limit"),
        (P, nan, "NaN does not limit"),
        (C, nan, "one batch only"),
        (R, nan, "NaN does not limit"),
        (M, nan, "NaN does not limit"),
        (R, inf, "infinity does not limit"),
        (M, inf, "infinity does not limit"),
        (P, 1.0, None),
        (P, 2147483647.0, None),
        (C, 1e-9, None),
        (R, 0.01, None),
        (M, 1e9, None),
    ],
)
def test_a_note_says_where_a_value_does_not_limit(
    key: QuotaKey, value: float, words: str | None
) -> None:
    notes = resolve_client(stored(({"user": None}, {key: value})), "alice", "etl").notes
    assert len(notes) == (words is not None)
    for note in notes:
        assert note.startswith(f"{key}: ")
        assert str(words) in note


def test_an_overridden_odd_value_is_no_note() -> None:
    index = stored(({"user": "alice"}, {P: 5}), ({"user": None}, {P: nan}))
    assert resolve_client(index, "alice", "etl").notes == ()


def test_every_level_names_its_bucket() -> None:
    assert [row.level for row in PRECEDENCE if row.bucket is Bucket.USER_CLIENT_ID] == [1, 2, 4, 5]
    assert [row.level for row in PRECEDENCE if row.bucket is Bucket.USER] == [3, 6]
    assert [row.level for row in PRECEDENCE if row.bucket is Bucket.CLIENT_ID] == [7, 8]
