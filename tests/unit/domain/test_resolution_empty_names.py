"""Callers whom nothing limits, and callers with an empty name: value, bucket, notes."""

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import QuotaIndex, Resolution, resolve_client

P, C, R = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)

Names = dict[str, str | None]


def stored(*rules: tuple[Names, dict[str, float]]) -> QuotaIndex:
    return QuotaIndex.of({ClientQuotaEntity.of(names): values for names, values in rules})


def bucket(resolution: Resolution, key: QuotaKey = P) -> tuple[str, ...]:
    return tuple(resolution.quotas[key].shared_by.values())


ONLY_CLIENTS = stored(({"client-id": "other"}, {P: 1}))
ONLY_USERS = stored(({"user": "other"}, {P: 1}))
ONLY_PAIRS = stored(({"user": "other", "client-id": "other"}, {P: 1}))
USERS_AND_CLIENTS = stored(({"user": "other"}, {P: 1}), ({"client-id": "other"}, {P: 1}))
SEVERAL_FOR_ANOTHER_KEY = stored(
    ({"user": "other"}, {P: 1}), ({"client-id": "other"}, {C: 1}), ({"user": None}, {R: 1})
)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (ONLY_CLIENTS, ("", "etl")),
        (ONLY_USERS, ("alice", "")),
        (ONLY_PAIRS, ("alice", "etl")),
        (USERS_AND_CLIENTS, ("", "etl")),
        (SEVERAL_FOR_ANOTHER_KEY, ("alice", "")),
    ],
    ids=["clients", "users", "pairs", "users and clients", "users for this key"],
)
def test_the_bucket_of_an_unlimited_caller_follows_the_kinds_of_rules_anywhere(
    index: QuotaIndex, expected: tuple[str, str]
) -> None:
    resolution = resolve_client(index, "alice", "etl")
    assert resolution.quotas[P].value is None
    assert bucket(resolution) == expected


def test_a_rule_that_selects_a_bucket_without_limiting_it_shows_in_the_bucket() -> None:
    index = stored(({"user": "alice", "client-id": None}, {P: 8}), ({"client-id": None}, {P: 9}))
    resolution = resolve_client(index, "alice", "")
    assert resolution.quotas[P].value is None
    assert bucket(resolution) == ("alice", "")
    assert bucket(resolve_client(index, "bob", "")) == ("", "")


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


def test_an_empty_user_has_the_rules_for_client_ids() -> None:
    index = stored(
        ({"client-id": "etl"}, {P: 7}), ({"client-id": None}, {P: 8}), ({"user": "x"}, {P: 3})
    )
    quota = resolve_client(index, "", "etl").quotas[P]
    assert (quota.value, [one.value for one in quota.overridden]) == (7, [8])
    assert bucket(resolve_client(index, "", "etl")) == ("", "etl")
    assert resolve_client(index, "", "web").quotas[P].value == 8


def test_the_default_user_hides_rules_for_client_ids_from_an_empty_user() -> None:
    index = stored(({"user": None}, {P: 6}), ({"client-id": "etl"}, {P: 7}))
    resolution = resolve_client(index, "", "etl")
    quota = resolution.quotas[P]
    assert (quota.value, quota.source, quota.overridden) == (None, None, ())
    assert bucket(resolution) == ("", "")
    assert [note.startswith(P) for note in resolution.notes] == [True, True]
    assert "look up no client-id rule" in resolution.notes[1]


def test_a_value_that_hides_no_rule_is_noted_once() -> None:
    (note,) = resolve_client(stored(({"user": None}, {P: 6})), "", "etl").notes
    assert "whose user name is empty" in note


@pytest.mark.parametrize("pair", ["etl", None], ids=repr)
def test_a_rule_for_default_user_and_client_id_uncovers_them_again(pair: str | None) -> None:
    index = stored(
        ({"user": None}, {P: 6}),
        ({"user": None, "client-id": pair}, {P: 4}),
        ({"client-id": "etl"}, {P: 7}),
        ({"client-id": None}, {P: 8}),
    )
    quota = resolve_client(index, "", "etl").quotas[P]
    assert (quota.value, [one.level for one in quota.overridden]) == (7, [8])


def test_a_caller_without_any_name_is_unlimited() -> None:
    index = stored(
        ({"user": None, "client-id": "b"}, {P: 1}),
        ({"user": None, "client-id": None}, {P: 1}),
        ({"user": None}, {P: 1}),
        ({"client-id": None}, {P: 1}),
    )
    quota = resolve_client(index, "", "").quotas[P]
    assert (quota.value, quota.source, quota.overridden) == (None, None, ())
    assert quota.shared_by == {"user": "", "client-id": ""}


def test_levels_hidden_from_an_empty_user_say_so() -> None:
    index = stored(({"user": None}, {P: 6}), ({"client-id": "etl"}, {P: 7}))
    levels = resolve_client(index, "", "etl", explain=True).quotas[P].levels
    assert not any(tried.applies for tried in levels)
    assert (levels[6].value, levels[6].reason) == (7, levels[7].reason)
    assert "look up no client-id rule" in str(levels[6].reason)
