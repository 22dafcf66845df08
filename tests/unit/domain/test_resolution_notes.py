"""What a resolution reports beside the value: unit, scope, identity, levels, notes, odd names."""

from math import inf, nan

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey, Scope
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import applicable_levels

P, C = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
R, M = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
EMPTY = QuotaIndex.of({})

Names = dict[str, str | None]


def stored(*rules: tuple[Names, dict[str, float]]) -> QuotaIndex:
    return QuotaIndex.of({ClientQuotaEntity.of(names): values for names, values in rules})


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


def test_a_level_that_can_never_apply_is_explained_with_a_reason(subtests: pytest.Subtests) -> None:
    for caller, applying in [
        (("u", "c"), {1, 2, 3, 4, 5, 6, 7, 8}),
        (("u", ""), {3, 6}),
        (("", "c"), {7, 8}),
        (("", ""), set()),
    ]:
        with subtests.test(caller=caller, applying=applying):
            levels = resolve_client(EMPTY, *caller, explain=True).quotas[P].levels
            assert {tried.level for tried in levels if tried.applies} == applying
            assert {tried.level for tried in levels if tried.reason is None} == applying
            assert applicable_levels(*caller) == applying


def test_a_note_says_where_a_value_does_not_limit(subtests: pytest.Subtests) -> None:
    for key, value, words in [
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
    ]:
        with subtests.test(value=value, words=words):
            notes = resolve_client(stored(({"user": None}, {key: value})), "alice", "etl").notes
            assert len(notes) == (words is not None)
            for note in notes:
                assert note.startswith(f"{key}: ")
                assert str(words) in note


def test_an_overridden_odd_value_is_no_note() -> None:
    index = stored(({"user": "alice"}, {P: 5}), ({"user": None}, {P: nan}))
    assert resolve_client(index, "alice", "etl").notes == ()


def test_an_empty_client_id_skips_rules_for_the_default_client_id_and_a_note_says_so() -> None:
    index = stored(
        ({"user": "U", "client-id": None}, {P: 8000}),
        ({"user": "U"}, {P: 6000}),
        ({"user": None, "client-id": None}, {P: 1}),
        ({"client-id": None}, {P: 2}),
    )
    resolution = resolve_client(index, "U", "")
    assert (resolution.quotas[P].value, resolution.quotas[P].overridden) == (6000, ())
    (note,) = resolution.notes
    assert "level 2" in note
    assert "do not cover an empty client-id" in note
    assert resolve_client(index, "U", "any").notes == ()


def test_no_note_is_made_of_a_skipped_rule_that_would_have_lost_anyway() -> None:
    index = stored(({"user": "U"}, {P: 6000}), ({"client-id": None}, {P: 2}))
    assert resolve_client(index, "U", "").notes == ()


def test_the_default_user_hides_rules_for_client_ids_from_an_empty_user() -> None:
    index = stored(({"user": None}, {P: 6}), ({"client-id": "etl"}, {P: 7}))
    resolution = resolve_client(index, "", "etl")
    assert (resolution.quotas[P].source, resolution.quotas[P].overridden) == (None, ())
    assert [note.startswith(P) for note in resolution.notes] == [True, True]
    assert "look up no client-id rule" in resolution.notes[1]


def test_a_value_that_hides_no_rule_is_noted_once() -> None:
    (note,) = resolve_client(stored(({"user": None}, {P: 6})), "", "etl").notes
    assert "whose user name is empty" in note


def test_levels_hidden_from_an_empty_user_say_so() -> None:
    index = stored(({"user": None}, {P: 6}), ({"client-id": "etl"}, {P: 7}))
    levels = resolve_client(index, "", "etl", explain=True).quotas[P].levels
    assert not any(tried.applies for tried in levels)
    assert (levels[6].value, levels[6].reason) == (7, levels[7].reason)
    assert "look up no client-id rule" in str(levels[6].reason)
