"""The index over all rules: against a port of the broker's two steps, and with alterations."""

from collections.abc import Sequence
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import ClientQuotaAlteration, Op, Quotas, apply_ops
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client, resolve_ip
from app.domain.resolution_index import CLIENT_KEYS, QuotaIndex
from app.domain.resolution_levels import PRECEDENCE, Resolution
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
SOURCES = [row.source for row in PRECEDENCE]
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
    for claim in claimed:
        assert judged(left, caller)[0] == claim.value
        assert left.pop(by_entity[claim.entity]) == claim.value
    assert judged(left, caller)[0] is None


@given(RULES, CALLERS)
def test_the_levels_explain_the_answer(rules: dict[Slots, float], caller: tuple[str, str]) -> None:
    key = QuotaKey.PRODUCER_BYTE_RATE
    index = QuotaIndex.of(quotas({key: rules}))
    quota = resolve_client(index, *caller, explain=True).quotas[key]
    assert [(tried.level, tried.name) for tried in quota.levels] == [*enumerate(SOURCES, 1)]
    assert len({tried.entity for tried in quota.levels}) == len(SOURCES)
    for tried in quota.levels:
        assert tried.value == index.values_of(tried.entity).get(key.value)
        assert tried.applies is (tried.reason is None)
    applying = [tried[:4] for tried in quota.levels if tried.applies and tried.value is not None]
    claimed = [quota.source, *quota.overridden] if quota.source else []
    assert applying == [tuple(claim) for claim in claimed]


USER_NAMES = st.sampled_from(["alice", "bob", None])
CLIENT_NAMES = st.sampled_from(["etl", None])
IP_NAMES = st.sampled_from(["10.0.0.1", "10.1", "010.0.0.1", "::1", "host.example", None])
CLIENT_ENTITIES = st.one_of(
    USER_NAMES.map(lambda user: {"user": user}),
    CLIENT_NAMES.map(lambda client_id: {"client-id": client_id}),
    st.tuples(USER_NAMES, CLIENT_NAMES).map(
        lambda names: {"user": names[0], "client-id": names[1]}
    ),
).map(ClientQuotaEntity.of)
IP_ENTITIES = IP_NAMES.map(lambda name: ClientQuotaEntity.of({"ip": name}))
KEYS_OF_CLIENTS = st.sampled_from(["producer_byte_rate", "request_percentage", "future_key"])
IP_KEYS = st.just("connection_creation_rate")


def values(keys: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(keys, st.integers(1, 99).map(float), min_size=1)


def alterations(
    entities: st.SearchStrategy[ClientQuotaEntity], keys: st.SearchStrategy[str]
) -> st.SearchStrategy[ClientQuotaAlteration]:
    numbers = st.integers(1, 99).map(Decimal)
    ops = st.one_of(st.builds(Op, keys, numbers), st.builds(lambda key: Op(key, remove=True), keys))
    return st.builds(ClientQuotaAlteration, entities, st.lists(ops, max_size=3).map(tuple))


STORED = st.builds(
    lambda clients, ips: {**clients, **ips},
    st.dictionaries(CLIENT_ENTITIES, values(KEYS_OF_CLIENTS), max_size=6),
    st.dictionaries(IP_ENTITIES, values(IP_KEYS), max_size=5),
)
ALTERATIONS = st.lists(
    st.one_of(alterations(CLIENT_ENTITIES, KEYS_OF_CLIENTS), alterations(IP_ENTITIES, IP_KEYS)),
    max_size=6,
)


def altered(quotas: Quotas, changes: Sequence[ClientQuotaAlteration]) -> Quotas:
    after = dict(quotas)
    for change in changes:
        after[change.entity] = apply_ops(after.get(change.entity, {}), change.ops)
    return {entity: left for entity, left in after.items() if left}


def answers(index: QuotaIndex) -> list[Resolution]:
    callers = [(user, client) for user in ("alice", "zoe", "") for client in ("etl", "web", "")]
    clients = [resolve_client(index, *caller, explain=True) for caller in callers]
    return clients + [resolve_ip(index, ip) for ip in ("10.0.0.1", "::1", "10.9.9.9")]


@given(STORED, ALTERATIONS, ALTERATIONS)
def test_alterations_on_top_answer_like_the_altered_quotas(
    quotas: Quotas, first: list[ClientQuotaAlteration], second: list[ClientQuotaAlteration]
) -> None:
    index = QuotaIndex.of(quotas)
    once = altered(quotas, first)
    twice = altered(once, second)
    assert answers(index.with_alterations(first)) == answers(QuotaIndex.of(once))
    stacked = index.with_alterations(first).with_alterations(second)
    assert answers(stacked) == answers(QuotaIndex.of(twice))
    assert answers(index) == answers(QuotaIndex.of(quotas))


def test_the_last_rule_of_a_kind_that_goes_changes_the_bucket_of_the_unlimited() -> None:
    user = ClientQuotaEntity.of({"user": "other"})
    client = ClientQuotaEntity.of({"client-id": "other"})
    key = "producer_byte_rate"
    index = QuotaIndex.of({user: {key: 1.0}, client: {key: 1.0}})
    gone = index.with_alterations([ClientQuotaAlteration(client, (Op(key, remove=True),))])
    (before, after) = (
        next(iter(resolve_client(item, "alice", "etl").quotas.values())).shared_by
        for item in (index, gone)
    )
    assert before == {"user": "", "client-id": "etl"}
    assert after == {"user": "alice", "client-id": ""}
