"""The numbered resolve cases, each asked of the resolver and of the broker's two steps."""

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.resolution import QuotaIndex, ResolvedQuota, resolve_client, resolve_ip
from tests.testkit.resolution_cases import (
    CASES,
    DEFAULT_USER,
    Case,
    DefaultQuotaCallback,
    I,
    P,
    entity_of,
)


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
