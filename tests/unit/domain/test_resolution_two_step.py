"""Resolution against a plain port of the broker's own two steps, over random rules and names."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import QuotaIndex, resolve_client
from app.domain.resolution_index import CLIENT_KEYS
from tests.testkit.resolution_cases import (
    ABSENT,
    DEFAULT,
    DefaultQuotaCallback,
    Rules,
    Slots,
    entity_of,
)

USERS = st.sampled_from(["alice", "bob", "<default>", "User:alice", "ü ~*"])
CLIENT_IDS = st.sampled_from(["etl", "web", "<default>", "alice"])
SLOTS = st.tuples(
    st.one_of(st.just(DEFAULT), st.just(ABSENT), USERS),
    st.one_of(st.just(DEFAULT), st.just(ABSENT), CLIENT_IDS),
).filter(lambda slots: slots != (ABSENT, ABSENT))
VALUES = st.integers(1, 10**9).map(float)
RULES = st.dictionaries(SLOTS, VALUES, max_size=12)
RULES_BY_KEY = st.fixed_dictionaries(dict.fromkeys(CLIENT_KEYS, RULES))
CALLERS = st.tuples(
    st.one_of(st.just(""), USERS, st.just("nobody")),
    st.one_of(st.just(""), CLIENT_IDS, st.just("nothing")),
)


def quotas(rules: dict[QuotaKey, Rules]) -> Quotas:
    stored: dict[ClientQuotaEntity, dict[str, float]] = {}
    for key, values in rules.items():
        for slots, value in values.items():
            stored.setdefault(entity_of(slots), {})[key.value] = value
    return stored


def judged(rules: Rules, caller: tuple[str, str]) -> tuple[float | None, tuple[str, str]]:
    callback = DefaultQuotaCallback(rules)
    tags = callback.quota_metric_tags(*caller)
    return callback.quota_limit(tags), tags


@given(RULES_BY_KEY, CALLERS)
def test_value_and_bucket_are_those_of_the_brokers_two_steps(
    rules: dict[QuotaKey, Rules], caller: tuple[str, str]
) -> None:
    resolved = resolve_client(QuotaIndex.of(quotas(rules)), *caller).quotas
    assert {
        key: (quota.value, tuple(quota.shared_by.values())) for key, quota in resolved.items()
    } == {key: judged(values, caller) for key, values in rules.items()}


@given(RULES, CALLERS)
def test_what_is_overridden_would_apply_in_turn_without_the_source(
    rules: dict[Slots, float], caller: tuple[str, str]
) -> None:
    key = QuotaKey.PRODUCER_BYTE_RATE
    quota = resolve_client(QuotaIndex.of(quotas({key: rules})), *caller).quotas[key]
    claimed = [quota.source, *quota.overridden] if quota.source else []
    by_entity = {entity_of(slots): slots for slots in rules}
    left = dict(rules)
    for one in claimed:
        assert judged(left, caller)[0] == one.value
        assert left.pop(by_entity[one.entity]) == one.value
    assert judged(left, caller)[0] is None


@given(RULES, CALLERS)
def test_the_levels_explain_the_answer(rules: dict[Slots, float], caller: tuple[str, str]) -> None:
    key = QuotaKey.PRODUCER_BYTE_RATE
    index = QuotaIndex.of(quotas({key: rules}))
    quota = resolve_client(index, *caller, explain=True).quotas[key]
    assert [tried.level for tried in quota.levels] == list(range(1, 9))
    for tried in quota.levels:
        assert tried.value == index.values_of(tried.entity).get(key.value)
        assert tried.applies is (tried.reason is None)
    applying = [tried[:4] for tried in quota.levels if tried.applies and tried.value is not None]
    claimed = [quota.source, *quota.overridden] if quota.source else []
    assert applying == [tuple(one) for one in claimed]
