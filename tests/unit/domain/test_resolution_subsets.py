"""The small world whole: every subset of the eight places, each key, with and without a name."""

from itertools import combinations

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey, keys_for
from app.domain.resolution import QuotaIndex, ResolvedQuota, resolve_client

# Written out here, not taken from the code under test: level, name, entity, bucket of alice/etl.
PLACES: dict[int, tuple[str, dict[str, str | None], tuple[str, str]]] = {
    1: ("user-client-id", {"user": "alice", "client-id": "etl"}, ("alice", "etl")),
    2: ("user-default-client-id", {"user": "alice", "client-id": None}, ("alice", "etl")),
    3: ("user", {"user": "alice"}, ("alice", "")),
    4: ("default-user-client-id", {"user": None, "client-id": "etl"}, ("alice", "etl")),
    5: ("default-user-default-client-id", {"user": None, "client-id": None}, ("alice", "etl")),
    6: ("default-user", {"user": None}, ("alice", "")),
    7: ("client-id", {"client-id": "etl"}, ("", "etl")),
    8: ("default-client-id", {"client-id": None}, ("", "etl")),
}
SUBSETS = [subset for size in range(1, 9) for subset in combinations(PLACES, size)]
KEYS = keys_for(frozenset({"user", "client-id"}))


def stored_at(levels: tuple[int, ...], key: QuotaKey) -> QuotaIndex:
    """Store the key at these levels; every other key at all the others, so keys could mix."""
    return QuotaIndex.of(
        {
            ClientQuotaEntity.of(entity): {key.value: level * 100.0}
            if level in levels
            else {other.value: 7.0 for other in KEYS if other is not key}
            for level, (_, entity, _) in PLACES.items()
        }
    )


def described(quota: ResolvedQuota) -> list[tuple[int, str, dict[str, str | None], float]]:
    places = [quota.source, *quota.overridden] if quota.source else []
    return [(one.level, one.name, one.entity.as_dict(), one.value) for one in places]


def expected(levels: list[int]) -> list[tuple[int, str, dict[str, str | None], float]]:
    return [(level, PLACES[level][0], PLACES[level][1], level * 100.0) for level in levels]


def test_there_are_255_subsets_of_eight_places_and_four_keys() -> None:
    assert (len(SUBSETS), len(KEYS)) == (255, 4)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("levels", SUBSETS, ids=lambda levels: "+".join(map(str, levels)))
def test_with_a_client_id_the_most_specific_place_decides_and_the_others_are_overridden(
    levels: tuple[int, ...], key: QuotaKey
) -> None:
    quota = resolve_client(stored_at(levels, key), "alice", "etl").quotas[key]
    assert described(quota) == expected(list(levels))
    assert quota.value == levels[0] * 100.0
    assert tuple(quota.shared_by.values()) == PLACES[levels[0]][2]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("levels", SUBSETS, ids=lambda levels: "+".join(map(str, levels)))
def test_without_a_client_id_only_the_user_and_the_default_user_can_decide(
    levels: tuple[int, ...], key: QuotaKey
) -> None:
    index = stored_at(levels, key)
    quota = resolve_client(index, "alice", None).quotas[key]
    applying = [level for level in levels if level in (3, 6)]
    assert described(quota) == expected(applying)
    assert quota.value == (applying[0] * 100.0 if applying else None)
    if applying:
        assert quota.shared_by == {"user": "alice", "client-id": ""}
    assert resolve_client(index, "alice", "") == resolve_client(index, "alice", None)
