"""Resolution of an address: two levels, and every spelling that a broker may have stored."""

from collections.abc import Mapping
from math import nan
from typing import Any

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey, Scope
from app.domain.resolution import (
    QuotaIndex,
    QuotaSource,
    Resolution,
    ResolvedQuota,
    resolve_ip,
)

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
    assert [tuple(one) for one in quota.overridden] == [(ip(None), 2, "default-ip", 50)]
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


@pytest.mark.parametrize("asked", ["::1", "0:0:0:0:0:0:0:1", "::0001"])
@pytest.mark.parametrize("name", ["::1", "[::1]", "0:0:0:0:0:0:0:1", "::00001"])
def test_any_stored_spelling_is_found_by_any_literal_spelling(asked: str, name: str) -> None:
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


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0.0/8", "10.1", "[::1]", "fe80::1%1"])
def test_what_is_not_a_literal_address_cannot_be_resolved(text: str) -> None:
    with pytest.raises(ValueError, match="not a literal"):
        resolve_ip(stored({}), text)


def test_explain_lists_both_levels() -> None:
    quota = only(resolve_ip(stored({None: 50}), "10.0.0.1", explain=True))
    assert [tuple(tried) for tried in quota.levels] == [
        (ip("10.0.0.1"), 1, "ip", None, True, None),
        (ip(None), 2, "default-ip", 50, True, None),
    ]
    assert only(resolve_ip(stored({None: 50}), "10.0.0.1")).levels == ()


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (2147483647.0, "not limited"),
        (1e-9, "every connection is rejected"),
        (0.0, "every connection is rejected"),
        (0.999, "every connection is rejected"),
        (-1.0, "every connection is rejected"),
        (nan, "every connection is rejected"),
        (1.0, None),
        (2147483646.0, None),
    ],
)
def test_a_note_says_where_a_connection_rate_does_not_limit_or_locks_out(
    limit: float, words: str | None
) -> None:
    notes = resolve_ip(stored({None: limit}), "10.0.0.1").notes
    assert [words in note for note in notes if words] == [True] * (words is not None)
    assert len(notes) == (words is not None)
