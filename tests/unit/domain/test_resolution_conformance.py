"""The numbered resolve cases, each asked of the resolver and of the broker's two steps."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.resolution import QuotaIndex, ResolvedQuota, resolve_client, resolve_ip
from tests.support.broker_two_step import ABSENT, DEFAULT, DefaultQuotaCallback, Slots, entity_of

P, C = "producer_byte_rate", "consumer_byte_rate"
R, M, I = "request_percentage", "controller_mutation_rate", "connection_creation_rate"  # noqa: E741

Store = Mapping[Slots, Mapping[str, float]]


def at(key: str, values: Mapping[Slots, float]) -> dict[Slots, dict[str, float]]:
    return {slots: {key: value} for slots, value in values.items()}


def without(store: Store, *gone: Slots) -> Store:
    return {slots: values for slots, values in store.items() if slots not in gone}


BOTH_DEFAULT, DEFAULT_USER, DEFAULT_CLIENT = (
    (DEFAULT, DEFAULT),
    (DEFAULT, ABSENT),
    (ABSENT, DEFAULT),
)

F2: Store = at(
    P,
    {
        DEFAULT_USER: 1000,
        DEFAULT_CLIENT: 2000,
        BOTH_DEFAULT: 3000,
        ("userA", ABSENT): 4000,
        ("userA", "client1"): 5000,
        ("userB", ABSENT): 6000,
        ("userB", "client1"): 7000,
        ("userB", DEFAULT): 8000,
        ("userC", ABSENT): 10000,
        (ABSENT, "client1"): 9000,
    },
)
F3: Store = at(
    P, {(DEFAULT, "c1"): 100, DEFAULT_USER: 200, (ABSENT, "c1"): 300, ("alice", ABSENT): 50}
)
F4: Store = {("alice", ABSENT): {P: 10}, (ABSENT, "c1"): {C: 20}, DEFAULT_USER: {R: 5}}
F2_NO_PAIR = without(F2, BOTH_DEFAULT)
F2_NO_USER = without(F2_NO_PAIR, DEFAULT_USER)
F3_NO_USER = without(F3, DEFAULT_USER)
TWO_TO_63 = 9223372036854775807.0


class Case(NamedTuple):
    """Stored values, a caller, and what applies: value, level, bucket; null = not said."""

    store: Store
    caller: tuple[str, str]
    value: float | None
    level: int | None
    bucket: tuple[str, str] | None = None
    key: str = P


CASES = {
    "C109": Case(F2, ("userA", "client1"), 5000, 1, ("userA", "client1")),
    "C110": Case(F2, ("userA", "client2"), 4000, 3, ("userA", "")),
    "C112": Case(F2, ("userB", "client1"), 7000, 1),
    "C113": Case(F2, ("userB", "client2"), 8000, 2, ("userB", "client2")),
    "C115": Case(F2, ("userC", "client1"), 10000, 3),
    "C116": Case(F2, ("userD", "client1"), 3000, 5, ("userD", "client1")),
    "C118": Case(F2_NO_PAIR, ("userD", "client1"), 1000, 6, ("userD", "")),
    "C119 client4": Case(F2_NO_PAIR, ("userF", "client4"), 1000, 6, ("userF", "")),
    "C119 client5": Case(F2_NO_PAIR, ("userF", "client5"), 1000, 6, ("userF", "")),
    "C121": Case(F2_NO_USER, ("userF", "client1"), 9000, 7),
    "C122 userF": Case(F2_NO_USER, ("userF", "client5"), 2000, 8, ("", "client5")),
    "C122 userG": Case(F2_NO_USER, ("userG", "client5"), 2000, 8, ("", "client5")),
    "C124": Case(without(F2, ("userA", "client1")), ("userA", "client1"), 4000, 3),
    "C125": Case({**F2, ("userA", DEFAULT): {P: 12000}}, ("userA", "client6"), 12000, 2),
    "C127": Case(F2, ("userD", ""), 1000, 6),
    "C128": Case(at(P, {DEFAULT_CLIENT: 500}), ("alice", ""), None, None),
    "C130": Case(F3, ("bob", "c1"), 100, 4),
    "C131": Case(F3, ("alice", "c1"), 50, 3),
    "C133 c1": Case(F3_NO_USER, ("bob", "c1"), 100, 4),
    "C133 c2": Case(F3_NO_USER, ("bob", "c2"), None, None),
    "C134": Case(without(F3_NO_USER, (DEFAULT, "c1")), ("bob", "c1"), 300, 7),
    "C136 P": Case(F4, ("bob", "c1"), None, None),
    "C136 C": Case(F4, ("bob", "c1"), 20, 7, key=C),
    "C136 R": Case(F4, ("bob", "c1"), 5, 6, key=R),
    "C137": Case(
        at(P, {DEFAULT_USER: 1000, ("alice", ABSENT): TWO_TO_63}), ("alice", "x"), TWO_TO_63, 3
    ),
    "C139 set": Case(at(P, {("userA", "client1"): 10}), ("userA", "client1"), 10, 1),
    "C139 removed": Case({}, ("userA", "client1"), None, None),
    "C140": Case(at(P, {("<default>", ABSENT): 5}), ("alice", "x"), None, None),
    "C142": Case(at(P, {("x", ABSENT): 7}), ("x", ""), 7, 3),
    "C143": Case(at(M, {DEFAULT_USER: 2}), ("U", "x"), 2, 6, key=M),
}


def resolved(case: Case) -> ResolvedQuota:
    index = QuotaIndex.of({entity_of(slots): values for slots, values in case.store.items()})
    quotas = resolve_client(index, *case.caller).quotas
    return {str(key): quota for key, quota in quotas.items()}[case.key]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_numbered_case_resolves_as_on_a_broker(case: Case) -> None:
    quota = resolved(case)
    assert quota.value == case.value
    assert (quota.source.level if quota.source else None) == case.level
    if case.bucket:
        assert quota.shared_by == dict(zip(("user", "client-id"), case.bucket, strict=True))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_two_steps_of_the_broker_agree_on_a_numbered_case(case: Case) -> None:
    rules = {slots: values[case.key] for slots, values in case.store.items() if case.key in values}
    callback = DefaultQuotaCallback(rules)
    tags = callback.quota_metric_tags(*case.caller)
    assert callback.quota_limit(tags) == case.value
    assert case.bucket in (None, tags)


def test_c118_a_bucket_changes_with_the_level_so_its_history_restarts() -> None:
    assert resolved(CASES["C116"]).shared_by != resolved(CASES["C118"]).shared_by


def test_c119_all_client_ids_of_a_user_share_the_default_users_limit() -> None:
    assert resolved(CASES["C119 client4"]).shared_by == resolved(CASES["C119 client5"]).shared_by


def test_c122_all_users_share_the_bucket_of_a_client_id() -> None:
    assert resolved(CASES["C122 userF"]).shared_by == resolved(CASES["C122 userG"]).shared_by


def test_c137_a_very_large_override_is_reported_as_configured_with_a_note() -> None:
    index = QuotaIndex.of(
        {entity_of(slots): values for slots, values in CASES["C137"].store.items()}
    )
    resolution = resolve_client(index, "alice", "x")
    assert [note for note in resolution.notes if note.startswith(P) and "does not limit" in note]


def test_c145_the_largest_connection_rate_means_not_limited() -> None:
    index = QuotaIndex.of(
        {
            ClientQuotaEntity.of({"ip": "10.0.0.1"}): {I: 2147483647.0},
            ClientQuotaEntity.of({"ip": None}): {I: 10.0},
        }
    )
    resolution = resolve_ip(index, "10.0.0.1")
    (quota,) = resolution.quotas.values()
    assert (quota.value, quota.source and quota.source.level) == (2147483647.0, 1)
    assert [note for note in resolution.notes if "not limited" in note]


def test_c146_rules_for_users_never_limit_connections() -> None:
    index = QuotaIndex.of({entity_of(DEFAULT_USER): {P: 1.0}})
    (quota,) = resolve_ip(index, "10.0.0.1").quotas.values()
    assert (quota.key, quota.value, quota.source) == (I, None, None)
