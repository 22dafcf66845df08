"""Which stored values do nothing: the levels alone, the inventory, and who was seen."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import (
    booleans,
    builds,
    integers,
    just,
    lists,
    none,
    one_of,
    sampled_from,
)

from app.domain.entities import ClientQuotaEntity
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex
from app.domain.stale_quotas import StaleKind
from tests.testkit.advised import advised_stale
from tests.testkit.advised_bodies import read_body
from tests.testkit.naive_stale import Seen, StaleRules, StaleValue, stale_values
from tests.unit.domain.test_idle_values import CALLERS, CLIENTS, ENTITIES, QUOTAS, USERS, P, Stored

C = "consumer_byte_rate"
NOW = datetime(2026, 11, 27, tzinfo=UTC)


def entity(**names: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({kind.replace("_", "-"): name for kind, name in names.items()})


def seen_under(stored: Stored, callers: Iterable[tuple[str, str]], key: str = P) -> list[Seen]:
    """Return callers as the pipeline resolves them."""
    index, found = QuotaIndex.of(stored), []
    for number, (user, client_id) in enumerate(callers):
        source = resolve_client(index, user, client_id).quotas[key].source  # type: ignore[index]
        level = 0 if source is None else source.level
        found.append(Seen(key, user, client_id, True, level, NOW + timedelta(minutes=number)))
    return found


def stale(stored: Stored, seen: Iterable[Seen] = (), **columns: Any) -> list[StaleValue]:
    return advised_stale(stored, seen, **columns)


@given(QUOTAS, lists(sampled_from(CALLERS), max_size=8))
def test_what_is_removed_changed_nothing_for_who_was_seen(
    stored: Stored, callers: list[tuple[str, str]]
):
    seen = seen_under(stored, callers)
    for found in stale(stored, seen):
        without = {each: values for each, values in stored.items() if each != found.entity}
        for user, client_id in callers:
            before, after = (
                resolve_client(QuotaIndex.of(quotas), user, client_id).quotas[P]  # type: ignore[index]
                for quotas in (stored, without)
            )
            assert before.value == after.value
            if before.value is not None:
                assert before.shared_by == after.shared_by


@given(
    QUOTAS,
    lists(sampled_from(CALLERS), max_size=8),
    booleans(),
    one_of(none(), just(frozenset({"alice"}))),
)
def test_a_value_is_found_once_with_a_body_that_removes_it(
    stored: Stored,
    callers: list[tuple[str, str]],
    is_long: bool,
    inventory: frozenset[str] | None,
):
    found = stale(stored, seen_under(stored, callers), is_long=is_long, inventory=inventory)
    assert len({(each.entity, each.key) for each in found}) == len(found)
    for each in found:
        (change,) = read_body(each.body())
        (op,) = change.ops
        assert (change.entity, op.key, op.remove) == (each.entity, P, True)
        assert change.expected == {P: each.value}
        if not is_long:
            assert each.kind in {StaleKind.SHADOWED, StaleKind.REDUNDANT, StaleKind.ORPHAN}


def kinds(found: Iterable[StaleValue]) -> dict[str, str]:
    return {str(each.entity): each.kind.value for each in found}


def test_a_value_that_others_go_before_for_all_who_were_seen_is_shadowed():
    stored = {entity(user="alice"): {P: 1.0}, entity(user="alice", client_id="etl"): {P: 2.0}}
    (found,) = stale(stored, seen_under(stored, [("alice", "etl")]))
    assert (found.kind, found.entity, found.winners) == (
        StaleKind.SHADOWED,
        entity(user="alice"),
        [entity(user="alice", client_id="etl")],
    )
    assert found.last_seen == NOW
    assert stale(stored, seen_under(stored, [("alice", "etl"), ("alice", "web")])) == []


def test_names_that_were_not_seen_are_idle_and_defaults_unused():
    stored = {
        entity(user="alice"): {P: 1.0, C: 1.0},
        entity(user="bob"): {P: 1.0},
        entity(user=None): {P: 5.0},
    }
    found = stale(stored, seen_under(stored, [("alice", "etl")]))
    assert [(str(each.entity), each.key, each.kind.value) for each in found] == [
        ("{user=<default>}", P, "default_unused"),
        ("{user=alice}", C, "idle"),
        ("{user=bob}", P, "idle"),
    ]
    assert found[0].winners == [entity(user="alice")]


def test_a_value_younger_than_the_data_is_not_idle():
    stored = {entity(user="bob"): {P: 1.0}}
    assert stale(stored, recent={(entity(user="bob"), P)}) == []
    assert kinds(stale(stored)) == {"{user=bob}": "idle"}


def test_a_user_that_no_inventory_has_is_an_orphan_unless_he_was_seen():
    stored = {entity(user=name): {P: 1.0} for name in ("alice", "bob", "ANONYMOUS")}
    seen = seen_under(stored, [("alice", "etl")])
    found = stale(stored, seen, inventory=frozenset(), is_long=False)
    assert kinds(found) == {"{user=bob}": "orphan"}


@pytest.mark.parametrize("names", [{"client_id": "etl"}, {"user": None, "client_id": "etl"}])
def test_a_client_id_that_a_users_metric_hides_is_not_judged(names: dict[str, str | None]):
    """`(alice, "")` says nothing about the client-ids of alice."""
    stored = {entity(**names): {P: 1.0}}
    tags = Seen(P, "alice", "", False, 3, NOW)
    assert stale(stored, [tags]) == []
    assert kinds(stale(stored, [tags._replace(key=C)])) == {str(entity(**names)): "idle"}
    assert kinds(stale(stored, [tags._replace(is_pair=True)])) == {str(entity(**names)): "idle"}


@given(integers(0, 3))
def test_addresses_are_left_out(number: int):
    stored = {ClientQuotaEntity.of({"ip": f"10.0.0.{number}"}): {"connection_creation_rate": 1.0}}
    assert stale(stored) == []


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


@given(VALUES, SEEN, INVENTORIES, booleans(), booleans())
def test_columns_are_judged_as_values_are(
    values: list[tuple[ClientQuotaEntity, str, float]],
    seen: list[Seen],
    inventory: Collection[str] | None,
    is_long: bool,
    is_recent: bool,
):
    stored: dict[ClientQuotaEntity, dict[str, float]] = {}
    for each, key, value in values:
        stored.setdefault(each, {})[key] = value
    recent = [(each, key) for each, key, _ in values[:1] if is_recent]
    found = stale(stored, seen, is_long=is_long, inventory=inventory, recent=recent)
    assert found == list(stale_values(stored, seen, StaleRules(30, is_long, inventory, recent)))
