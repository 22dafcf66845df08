"""Quota callbacks: Kafka's rules as the default, the models of others, and classes of your own."""

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import ClientQuotaAlteration, Op, Quotas
from app.domain.authorization import Policy
from app.domain.callbacks.callback import (
    IGNORED,
    NO_METADATA,
    QUOTA_KEYS,
    QUOTA_TYPES,
    CallbackModel,
    ClusterMetadata,
    QuotaType,
    ignored_by,
)
from app.domain.callbacks.foreign import ForeignCallback, make_foreign
from app.domain.callbacks.groups import Groups
from app.domain.callbacks.kafka_rules import KAFKA_RULES, KafkaQuotaCallback
from app.domain.callbacks.partition_share import PartitionShare
from app.domain.callbacks.strimzi_static import StrimziStatic
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import CallbackFailedError
from app.domain.plan_impact import BucketName, PublishedBucket, bucket_of, touched_buckets
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import Resolution, ResolvedQuota

P = QuotaKey.PRODUCER_BYTE_RATE
M = QuotaKey.CONTROLLER_MUTATION_RATE

NAMES = (None, "alice", "etl")
ENTITIES = [
    ClientQuotaEntity.of(dict(pairs))
    for pairs in (
        *((("user", user),) for user in NAMES),
        *((("client-id", client_id),) for client_id in NAMES),
        *((("user", user), ("client-id", name)) for user, name in itertools.product(NAMES, NAMES)),
    )
]
CALLERS = list(itertools.product(("", "alice", "zoe"), ("", "etl", "zoe")))
QUOTAS = st.dictionaries(
    st.sampled_from(ENTITIES),
    st.dictionaries(st.sampled_from(sorted(QUOTA_KEYS)), st.integers(1, 9).map(float), max_size=3),
    max_size=6,
)


def index_of(*rules: tuple[Mapping[str, str | None], Mapping[str, float]]) -> QuotaIndex:
    return QuotaIndex.of({ClientQuotaEntity.of(names): values for names, values in rules})


def asked(
    model: CallbackModel,
    index: QuotaIndex,
    user: str,
    client_id: str = "",
    cluster: ClusterMetadata = NO_METADATA,
) -> Resolution:
    over = model.over(index, cluster)
    return resolve_client(index, user, client_id, explain=True, callback=over)


def limit_of(resolution: Resolution, key: QuotaKey = P) -> tuple[float | None, dict[str, str]]:
    quota: ResolvedQuota = resolution.quotas[key]
    return quota.value, dict(quota.shared_by)


def decisions(callback: KafkaQuotaCallback) -> list[object]:
    found: list[object] = []
    for quota_type, (user, client_id) in itertools.product(QUOTA_TYPES, CALLERS):
        tags = callback.quota_metric_tags(quota_type, f"User:{user}", client_id)
        found.append((tags, callback.quota_limit(quota_type, tags)))
    return found


@given(QUOTAS, QUOTAS)
def test_what_a_callback_takes_in_counts_as_what_is_stored(before: Quotas, after: Quotas) -> None:
    recording = KafkaQuotaCallback(QuotaIndex.of({}))
    for quotas in (before, after):
        for entity, quota_type in itertools.product(ENTITIES, QUOTA_TYPES):
            value = quotas.get(entity, {}).get(quota_type.key)
            if value is None:
                recording.remove_quota(quota_type, entity)
            else:
                recording.update_quota(quota_type, entity, value)
            assert not recording.quota_reset_required(quota_type)
        assert not recording.update_cluster_metadata(NO_METADATA)
        assert decisions(recording) == decisions(KafkaQuotaCallback(QuotaIndex.of(quotas)))


def test_threads_may_share_a_callback_between_tags_and_limit() -> None:
    index = index_of(({"user": "alice"}, {P: 1}), ({"user": "zoe"}, {P: 2}))
    callback = KafkaQuotaCallback(index)
    tags = callback.quota_metric_tags(QuotaType.PRODUCE, "User:alice", "etl")
    callback.quota_metric_tags(QuotaType.PRODUCE, "User:zoe", "etl")
    assert callback.quota_limit(QuotaType.PRODUCE, tags) == 1


STATIC = StrimziStatic({QuotaType.PRODUCE: 100_000.0}, frozenset({"boss"}))


def test_a_static_limit_is_everybody_s_whatever_is_stored() -> None:
    index = index_of(({"user": "alice"}, {P: 1000, M: 5}), ({"user": None}, {P: 7}))
    for user in ("alice", "bob"):
        resolution = asked(STATIC, index, user, "etl")
        assert limit_of(resolution) == (100_000.0, {"quota.type": "PRODUCE"})
        assert limit_of(resolution, M) == (None, {"quota.type": "CONTROLLER_MUTATION"})
        quota = resolution.quotas[P]
        assert (quota.source, quota.overridden) == (None, ())
        assert not any(level.applies for level in quota.levels)
        ignored, storage = "ignores every stored quota", "storage throttling"
        assert [any(word in note for note in resolution.notes) for word in (ignored, storage)] == [
            True,
            True,
        ]


def test_who_is_excluded_from_a_static_limit_is_unlimited() -> None:
    value, tags = limit_of(asked(STATIC, index_of(), "boss"))
    assert value is None
    assert tags == {"quota.type": "PRODUCE", "excluded-principal-quota-key": "true"}


GROUPS = Groups({"alice": "ops", "bob": "ops", "eve": "audit"}, {"etl": "batch"})


def test_a_group_shares_what_is_stored_under_its_name() -> None:
    index = index_of(({"user": "group:ops"}, {P: 500}), ({"user": "alice"}, {P: 9}))
    for user in ("alice", "bob"):
        resolution = asked(GROUPS, index, user)
        quota = resolution.quotas[P]
        assert limit_of(resolution) == (500, {"group": "ops"})
        assert quota.source is not None
        assert quota.source.entity == ClientQuotaEntity.of({"user": "group:ops"})
        assert quota.overridden == ()
        assert [level.entity for level in quota.levels if level.applies] == [quota.source.entity]
        assert limit_of(resolution, M) == (None, {"group": "ops"})


def test_a_user_s_group_counts_before_a_client_id_s() -> None:
    index = index_of(({"user": "group:batch"}, {P: 3}), ({"user": "group:audit"}, {P: 4}))
    assert limit_of(asked(GROUPS, index, "eve", "etl")) == (4, {"group": "audit"})
    assert limit_of(asked(GROUPS, index, "zoe", "etl")) == (3, {"group": "batch"})


@given(QUOTAS)
def test_who_is_in_no_group_is_judged_by_kafka_s_rules(quotas: Quotas) -> None:
    index, none = QuotaIndex.of(quotas), Groups({}, {})
    for user, client_id in CALLERS:
        assert asked(none, index, user, client_id) == asked(KAFKA_RULES, index, user, client_id)


def test_an_entity_whose_callers_are_all_in_a_group_limits_nobody(
    subtests: pytest.Subtests,
) -> None:
    for names, ignored in (
        ({"user": "alice"}, True),
        ({"user": "alice", "client-id": None}, True),
        ({"client-id": "etl"}, True),
        ({"user": "zoe", "client-id": "etl"}, True),
        ({"user": "group:ops"}, False),
        ({"user": None}, False),
        ({"user": "zoe", "client-id": None}, False),
    ):
        with subtests.test(str(names)):
            why = GROUPS.why_ineffective(ClientQuotaEntity.of(names), P)
            assert (why is not None) == ignored
    assert GROUPS.why_ineffective(ClientQuotaEntity.of({"user": "alice"}), "future_key") is None


def test_an_alteration_of_what_is_ignored_is_named_and_may_be_refused() -> None:
    ops = (Op(P, Decimal(5)), Op("request_percentage", remove=True))
    alice = ClientQuotaAlteration(ClientQuotaEntity.of({"user": "alice"}), ops)
    zoe = ClientQuotaAlteration(ClientQuotaEntity.of({"user": "zoe"}), ops)
    found = ignored_by(GROUPS, [zoe, alice])
    assert [(each.entity, each.code) for each in found] == [(alice.entity, IGNORED)] * 2
    assert ignored_by(KAFKA_RULES, [zoe, alice]) == []
    refusing = Policy((), others_may=True, refuses_ignored=True)
    (violation,) = refusing.ignored_violations(GROUPS, [zoe, alice])
    assert (violation.pointer, violation.code) == ("/alterations/1/ops/0/key", IGNORED)
    assert Policy((), others_may=True).ignored_violations(GROUPS, [alice]) == []


SHARE = PartitionShare({"alice": frozenset({"orders", "bills"})}, {"etl": frozenset({"bills"})})
LED = ClusterMetadata((1, 2, 3), {"orders": (1, 1, 2, None), "bills": (2,)})


def test_a_limit_is_spread_over_the_leaders_of_the_client_s_topics() -> None:
    index = index_of(({"user": "alice"}, {P: 1000, M: 8}))
    quotas = asked(SHARE, index, "alice", cluster=LED).quotas
    assert quotas[P].value == 1000
    assert quotas[P].by_broker == {1: 500, 2: 500, 3: 0}
    assert quotas[P].source is not None
    assert quotas[M].by_broker is None
    by_client = index_of(({"client-id": "etl"}, {P: 30}))
    assert asked(SHARE, by_client, "zoe", "etl", LED).quotas[P].by_broker == {1: 0, 2: 30, 3: 0}


def test_a_limit_is_not_spread_where_there_is_no_leader() -> None:
    index = index_of(({"user": "alice"}, {P: 1000}), ({"user": "zoe"}, {P: 5}))
    for user, cluster in (("zoe", LED), ("alice", NO_METADATA)):
        assert asked(SHARE, index, user, cluster=cluster).quotas[P].by_broker is None


class Recording:
    """A class of your own: it shares by the first letter, and limits by what it took in last."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor, self.calls = factor, list[Any]()
        self.values: dict[tuple[str, str | None], float] = {}
        self.broken: str | None = None

    def _note(self, method: str, *arguments: Any) -> None:
        self.calls.append((method, *arguments))
        if method == self.broken:
            raise ZeroDivisionError("no such day")

    def quota_metric_tags(self, quota_type: str, principal: str, client_id: str) -> Any:
        self._note("quota_metric_tags", quota_type, principal, client_id)
        return {"user": principal.removeprefix("User:")}

    def quota_limit(self, quota_type: str, metric_tags: Mapping[str, str]) -> Any:
        self._note("quota_limit", quota_type, metric_tags)
        value = self.values.get((quota_type, metric_tags["user"]))
        return None if value is None else value * self.factor

    def update_quota(self, quota_type: str, entity: Any, new_value: float) -> None:
        self._note("update_quota", quota_type, entity, new_value)
        self.values[quota_type, entity.get("user")] = new_value

    def remove_quota(self, quota_type: str, entity: Any) -> None:
        self._note("remove_quota", quota_type, entity)
        del self.values[quota_type, entity.get("user")]

    def quota_reset_required(self, quota_type: str) -> bool:
        return False

    def update_cluster_metadata(self, cluster: ClusterMetadata) -> bool:
        self._note("update_cluster_metadata", cluster)
        return False

    def close(self) -> None:
        self._note("close")


def foreign() -> tuple[ForeignCallback, Recording]:
    recording = Recording(factor=2.0)
    return ForeignCallback("pkg:Recording", recording), recording


def test_a_class_of_your_own_takes_in_what_differs_as_in_a_broker() -> None:
    model, recording = foreign()
    present = index_of(({"user": "alice"}, {P: 5}), ({"ip": "10.0.0.1"}, {}))
    assert limit_of(asked(model, present, "alice", "etl")) == (10, {"user": "alice"})
    assert recording.calls[:4] == [
        ("update_cluster_metadata", NO_METADATA),
        ("update_quota", "PRODUCE", {"user": "alice"}, 5),
        ("quota_metric_tags", "PRODUCE", "User:alice", "etl"),
        ("quota_limit", "PRODUCE", {"user": "alice"}),
    ]
    alice, bob = (ClientQuotaEntity.of({"user": name}) for name in ("alice", "bob"))
    proposed = present.with_values({alice: {}, bob: {P.value: 7.0}})
    assert limit_of(asked(model, proposed, "alice"))[0] is None
    assert limit_of(asked(model, proposed, "bob"))[0] == 14
    assert limit_of(asked(model, present, "alice"))[0] == 10
    asked(model, present, "alice", cluster=LED)
    assert ("update_cluster_metadata", LED) in recording.calls
    model.close()
    assert recording.calls[-1] == ("close",)


@pytest.mark.parametrize("method", ["update_quota", "quota_metric_tags", "quota_limit"])
def test_what_a_class_of_your_own_raises_names_it(method: str) -> None:
    model, recording = foreign()
    recording.broken = method
    index = index_of(({"user": "alice"}, {P: 5}))
    for _ in range(2):
        expected = f"callback pkg:Recording failed: {method} raised ZeroDivisionError: no such day"
        with pytest.raises(CallbackFailedError, match=expected):
            asked(model, index, "alice")
    recording.broken = None
    assert limit_of(asked(model, index, "alice"))[0] == 10


@pytest.mark.parametrize(
    ("method", "returned", "complaint"),
    [
        ("quota_metric_tags", None, "no mapping from text to text"),
        ("quota_metric_tags", {"user": 1}, "no mapping from text to text"),
        ("quota_limit", "1", "neither a number nor None"),
        ("quota_limit", True, "neither a number nor None"),
        ("quota_limit", float("nan"), "neither a number nor None"),
    ],
)
def test_what_a_class_of_your_own_must_not_return(
    method: str, returned: Any, complaint: str
) -> None:
    model, recording = foreign()
    setattr(recording, method, lambda *_: returned)
    with pytest.raises(CallbackFailedError, match=complaint):
        asked(model, index_of(), "alice")


def test_a_class_that_cannot_be_made_or_lacks_a_method_is_refused() -> None:
    with pytest.raises(ValueError, match="pkg:Recording was not made: TypeError"):
        make_foreign("pkg:Recording", Recording, {"speed": 1})
    with pytest.raises(ValueError, match="pkg:dict lacks quota_metric_tags, quota_limit"):
        make_foreign("pkg:dict", dict, {})


def test_the_bucket_of_other_tags_is_named_as_the_pipeline_names_it() -> None:
    index = index_of(({"user": "group:ops"}, {P: 500}))
    for model, user, name in (
        (GROUPS, "alice", "group:ops"),
        (STATIC, "alice", "quota.type:PRODUCE"),
        (STATIC, "boss", "excluded-principal-quota-key:true,quota.type:PRODUCE"),
        (KAFKA_RULES, "group:ops", "group:ops"),
    ):
        assert bucket_of(asked(model, index, user, "etl").quotas[P]) == BucketName(P, name, "")


def test_an_impact_is_that_of_the_group_whose_limit_changes() -> None:
    ops = BucketName(P, "group:ops", "")
    published = [PublishedBucket(7, ops, 900.0, 1, datetime(2026, 11, 1, tzinfo=UTC), False)]
    present = index_of(({"user": "group:ops"}, {P: 1000}))
    lower = [Op(P, Decimal(600))]

    def touched(user: str) -> list[tuple[int, float | None]]:
        entity = ClientQuotaEntity.of({"user": user})
        alterations = [ClientQuotaAlteration(entity, tuple(lower))]
        proposed = present.with_alterations(alterations)
        found = touched_buckets(
            published, alterations, present, proposed, lambda index: GROUPS.over(index, LED)
        )
        return [(each.bucket.bucket_id, each.limit_new) for each in found]

    assert touched("group:ops") == [(7, 600.0)]
    assert touched("alice") == []
