"""Resolution: the numbered cases, every subset of the eight levels, and addresses."""

from collections.abc import Mapping
from itertools import combinations, product
from math import nan
from typing import Any

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey, Scope, keys_for
from app.domain.resolution import resolve_client, resolve_ip
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import QuotaSource, Resolution, ResolvedQuota
from tests.testkit.resolution_cases import (
    ABSENT,
    CASES,
    DEFAULT,
    DEFAULT_CLIENT,
    DEFAULT_USER,
    C,
    Case,
    DefaultQuotaCallback,
    I,
    P,
    R,
    at,
    entity_of,
)

USER, CLIENT, PAIR = ("other", ABSENT), (ABSENT, "other"), ("other", "other")
SELECTED = at(P, {("alice", DEFAULT): 8, DEFAULT_CLIENT: 9})
FOR_NO_USER = at(P, {(ABSENT, "etl"): 7, DEFAULT_CLIENT: 8, ("x", ABSENT): 3})
UNCOVERED = at(P, {DEFAULT_USER: 6, (DEFAULT, "etl"): 4, (ABSENT, "etl"): 7, DEFAULT_CLIENT: 8})

EVERY_CASE = {
    **CASES,
    "unlimited beside client-ids": Case(
        at(P, {CLIENT: 1}), ("alice", "etl"), None, None, ("", "etl")
    ),
    "unlimited beside users": Case(at(P, {USER: 1}), ("alice", "etl"), None, None, ("alice", "")),
    "unlimited beside pairs": Case(
        at(P, {PAIR: 1}), ("alice", "etl"), None, None, ("alice", "etl")
    ),
    "unlimited beside both": Case(
        at(P, {USER: 1, CLIENT: 1}), ("alice", "etl"), None, None, ("", "etl")
    ),
    "unlimited beside users, of this key": Case(
        {USER: {P: 1}, CLIENT: {C: 1}, DEFAULT_USER: {R: 1}},
        ("alice", "etl"),
        None,
        None,
        ("alice", ""),
    ),
    "selected by a rule that does not limit": Case(
        SELECTED, ("alice", ""), None, None, ("alice", "")
    ),
    "another of whom no rule bears the name": Case(SELECTED, ("bob", ""), None, None, ("", "")),
    "no user, a rule for the client-id": Case(FOR_NO_USER, ("", "etl"), 7, 7, ("", "etl")),
    "no user, a rule for the default": Case(FOR_NO_USER, ("", "web"), 8, 8),
    "no user, a rule for the pair too": Case(UNCOVERED, ("", "etl"), 7, 7),
}
"""The first of unlimited callers: their bucket follows the kinds of rules anywhere."""


def resolved(case: Case) -> ResolvedQuota:
    index = QuotaIndex.of({entity_of(slots): values for slots, values in case.store.items()})
    quotas = resolve_client(index, *case.caller).quotas
    return {str(key): quota for key, quota in quotas.items()}[case.key]


def test_a_numbered_case_resolves_as_on_a_broker(subtests: pytest.Subtests) -> None:
    for name, case in EVERY_CASE.items():
        with subtests.test(name):
            quota = resolved(case)
            assert quota.value == case.value
            assert (quota.source.level if quota.source else None) == case.level
            if case.bucket:
                assert quota.shared_by == dict(zip(("user", "client-id"), case.bucket, strict=True))


def test_the_two_steps_of_the_broker_agree_on_a_numbered_case(subtests: pytest.Subtests) -> None:
    for name, case in EVERY_CASE.items():
        with subtests.test(name):
            rules = {
                slots: values[case.key]
                for slots, values in case.store.items()
                if case.key in values
            }
            callback = DefaultQuotaCallback(rules)
            tags = callback.quota_metric_tags(*case.caller)
            assert callback.quota_limit(tags) == case.value
            assert case.bucket in (None, tags)


def test_c146_rules_for_users_never_limit_connections() -> None:
    index = QuotaIndex.of({entity_of(DEFAULT_USER): {P: 1.0}})
    (quota,) = resolve_ip(index, "10.0.0.1").quotas.values()
    assert (quota.key, quota.value, quota.source) == (I, None, None)


# Written out here, not taken from the code under test: level, name, entity, bucket of alice/etl.
LEVELS: dict[int, tuple[str, dict[str, str | None], tuple[str, str]]] = {
    1: ("user-client-id", {"user": "alice", "client-id": "etl"}, ("alice", "etl")),
    2: ("user-default-client-id", {"user": "alice", "client-id": None}, ("alice", "etl")),
    3: ("user", {"user": "alice"}, ("alice", "")),
    4: ("default-user-client-id", {"user": None, "client-id": "etl"}, ("alice", "etl")),
    5: ("default-user-default-client-id", {"user": None, "client-id": None}, ("alice", "etl")),
    6: ("default-user", {"user": None}, ("alice", "")),
    7: ("client-id", {"client-id": "etl"}, ("", "etl")),
    8: ("default-client-id", {"client-id": None}, ("", "etl")),
}
SUBSETS = [subset for size in range(1, 9) for subset in combinations(LEVELS, size)]
KEYS = keys_for(frozenset({"user", "client-id"}))


def stored_at(levels: tuple[int, ...], key: QuotaKey) -> QuotaIndex:
    """Store the key at these levels; every other key at all the others, so keys could mix."""
    return QuotaIndex.of(
        {
            ClientQuotaEntity.of(entity): {key.value: level * 100.0}
            if level in levels
            else {other.value: 7.0 for other in KEYS if other is not key}
            for level, (_, entity, _) in LEVELS.items()
        }
    )


def described(quota: ResolvedQuota) -> list[tuple[int, str, dict[str, str | None], float]]:
    claims = [quota.source, *quota.overridden] if quota.source else []
    return [
        (position.level, position.name, position.entity.as_dict(), position.value)
        for position in claims
    ]


def expected(levels: list[int]) -> list[tuple[int, str, dict[str, str | None], float]]:
    return [(level, LEVELS[level][0], LEVELS[level][1], level * 100.0) for level in levels]


def test_there_are_255_subsets_of_eight_levels_and_four_keys() -> None:
    assert (len(SUBSETS), len(KEYS)) == (255, 4)


def test_with_a_client_id_the_most_specific_level_decides_and_the_others_are_overridden() -> None:
    for key, levels in product(KEYS, SUBSETS):
        quota = resolve_client(stored_at(levels, key), "alice", "etl").quotas[key]
        assert described(quota) == expected(list(levels)), (key, levels)
        assert quota.value == levels[0] * 100.0
        assert tuple(quota.shared_by.values()) == LEVELS[levels[0]][2]


def test_without_a_client_id_only_the_user_and_the_default_user_can_decide() -> None:
    for key, levels in product(KEYS, SUBSETS):
        index = stored_at(levels, key)
        quota = resolve_client(index, "alice", None).quotas[key]
        applying = [level for level in levels if level in (3, 6)]
        assert described(quota) == expected(applying), (key, levels)
        assert quota.value == (applying[0] * 100.0 if applying else None)
        if applying:
            assert quota.shared_by == {"user": "alice", "client-id": ""}
        assert resolve_client(index, "alice", "") == resolve_client(index, "alice", None)


KEY = QuotaKey.CONNECTION_CREATION_RATE


def ip(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"ip": name})


def stored(limits: Mapping[Any, float]) -> QuotaIndex:
    return QuotaIndex.of({ip(name): {KEY.value: limit} for name, limit in limits.items()})


def only(resolution: Resolution) -> ResolvedQuota:
    ((key, quota),) = resolution.quotas.items()
    assert key is KEY
    return quota


def source(quota: ResolvedQuota) -> tuple[str | None, int, str, float] | None:
    if quota.source is None:
        return None
    return (quota.source.entity.as_dict()["ip"], *quota.source[1:])


def test_an_address_has_its_own_rule_before_the_default() -> None:
    resolution = resolve_ip(stored({"10.0.0.1": 5, None: 50}), "10.0.0.1")
    quota = only(resolution)
    assert (quota.value, quota.unit, quota.scope) == (5, "connections/s", Scope.PER_BROKER)
    assert source(quota) == ("10.0.0.1", 1, QuotaSource.IP, 5)
    assert [tuple(item) for item in quota.overridden] == [(ip(None), 2, "default-ip", 50)]
    assert (resolution.identity, quota.shared_by) == ({"ip": "10.0.0.1"}, {"ip": "10.0.0.1"})
    assert resolution.notes == ()


def test_another_address_has_the_default_in_a_bucket_of_its_own() -> None:
    quota = only(resolve_ip(stored({"10.0.0.1": 5, None: 50}), "10.0.0.2"))
    assert source(quota) == (None, 2, QuotaSource.DEFAULT_IP, 50)
    assert (quota.overridden, quota.shared_by) == ((), {"ip": "10.0.0.2"})


def test_without_a_rule_an_address_is_unlimited() -> None:
    quota = only(resolve_ip(stored({"10.0.0.1": 5}), "10.0.0.2"))
    assert (quota.value, quota.source, quota.overridden) == (None, None, ())
    assert quota.shared_by == {"ip": "10.0.0.2"}


def test_any_stored_spelling_is_found_by_any_literal_spelling(subtests: pytest.Subtests) -> None:
    for asked in ["::1", "0:0:0:0:0:0:0:1", "::0001"]:
        for name in ["::1", "[::1]", "0:0:0:0:0:0:0:1", "::00001"]:
            with subtests.test(asked=asked, name=name):
                resolution = resolve_ip(stored({name: 5}), asked)
                assert source(only(resolution)) == (name, 1, QuotaSource.IP, 5)
                assert resolution.identity == {"ip": "::1"}
                assert len(resolution.notes) == (name != "::1")


def test_an_ipv4_mapped_address_is_its_ipv4_address() -> None:
    resolution = resolve_ip(stored({"10.0.0.1": 5}), "::ffff:10.0.0.1")
    assert (only(resolution).value, resolution.identity) == (5, {"ip": "10.0.0.1"})


def test_of_several_spellings_the_canonical_one_is_taken_and_a_note_names_the_others() -> None:
    index = stored({"010.0.0.1": 4, "10.1": 3, "10.0.0.1": 5, "167772161": 2})
    resolution = resolve_ip(index, "10.0.0.1")
    assert source(only(resolution)) == ("10.0.0.1", 1, QuotaSource.IP, 5)
    assert only(resolution).overridden == ()
    (note,) = resolution.notes
    for other in ("'010.0.0.1'", "'10.1'", "'167772161'"):
        assert other in note
    assert "the canonical text" in note
    assert "applied last" in note


def test_without_a_canonical_spelling_the_first_by_name_is_taken_and_a_note_says_so() -> None:
    for names in (["[::1]", "0::1"], ["0::1", "[::1]"]):
        resolution = resolve_ip(stored(dict.fromkeys(names, 5.0)), "::1")
        assert source(only(resolution)) == ("0::1", 1, QuotaSource.IP, 5)
        (note,) = resolution.notes
        assert "none is canonical" in note
        assert "'[::1]'" in note


def test_a_long_list_of_spellings_is_cut_with_a_count() -> None:
    spellings = {"0" * width + "10.0.0.1": 5.0 for width in range(6)}
    (note,) = resolve_ip(stored(spellings), "10.0.0.1").notes
    assert "and 2 more" in note


def test_host_names_are_left_out_and_a_note_says_so() -> None:
    resolution = resolve_ip(stored({"host.example": 1, "10.0.0.0/8": 1, None: 50}), "10.0.0.1")
    assert only(resolution).value == 50
    (note,) = resolution.notes
    assert "'host.example'" in note


def test_a_rule_without_a_connection_rate_is_no_rule() -> None:
    index = QuotaIndex.of({ip("10.0.0.1"): {"future_key": 1.0}, ip(None): {KEY.value: 50.0}})
    quota = only(resolve_ip(index, "10.0.0.1"))
    assert (quota.value, quota.overridden) == (50, ())


def test_an_entity_of_user_and_ip_counts_as_its_ip() -> None:
    both = ClientQuotaEntity.of({"user": "alice", "ip": "10.0.0.1"})
    quota = only(resolve_ip(QuotaIndex.of({both: {KEY.value: 5.0}}), "10.0.0.1"))
    assert (quota.value, quota.source and quota.source.entity) == (5, both)


def test_what_is_not_a_literal_address_cannot_be_resolved(subtests: pytest.Subtests) -> None:
    for text in ["", "localhost", "10.0.0.0/8", "10.1", "[::1]", "fe80::1%1"]:
        with subtests.test(text=text), pytest.raises(ValueError, match="not a literal"):
            resolve_ip(stored({}), text)


def test_explain_lists_both_levels() -> None:
    quota = only(resolve_ip(stored({None: 50}), "10.0.0.1", explain=True))
    assert [tuple(tried) for tried in quota.levels] == [
        (ip("10.0.0.1"), 1, "ip", None, True, None),
        (ip(None), 2, "default-ip", 50, True, None),
    ]
    assert only(resolve_ip(stored({None: 50}), "10.0.0.1")).levels == ()


def test_a_note_says_where_a_connection_rate_does_not_limit_or_locks_out(
    subtests: pytest.Subtests,
) -> None:
    for limit, words in [
        (2147483647.0, "not limited"),
        (1e-9, "every connection is rejected"),
        (0.0, "every connection is rejected"),
        (0.999, "every connection is rejected"),
        (-1.0, "every connection is rejected"),
        (nan, "every connection is rejected"),
        (1.0, None),
        (2147483646.0, None),
    ]:
        with subtests.test(limit=limit, words=words):
            notes = resolve_ip(stored({None: limit}), "10.0.0.1").notes
            assert [words in note for note in notes if words] == [True] * (words is not None)
            assert len(notes) == (words is not None)
