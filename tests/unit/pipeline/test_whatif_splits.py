"""Sums of callers that would be split: against each caller resolved alone."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity
from app.domain.plan_impact import ANY_OTHER
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import PRECEDENCE, ResolvedQuota
from app.pipeline.whatif.buckets import NamesOfQuotas, may_split

KEY = QuotaKey.PRODUCER_BYTE_RATE
NAMES = ("a", "b", "c")
NEVER = len(PRECEDENCE) + 1
_NAME = st.sampled_from([*NAMES, None])
_ENTITY = st.fixed_dictionaries({}, optional={"user": _NAME, "client-id": _NAME}).filter(bool)
QUOTAS = st.dictionaries(_ENTITY.map(ClientQuotaEntity.of), st.just({KEY.value: 5.0}), max_size=8)


def resolved(quotas: QuotaIndex, own: Mapping[str, str], name: str) -> ResolvedQuota:
    user, client_id = own.get("user", name), own.get("client-id", name)
    return resolve_client(quotas, user, client_id).quotas[KEY]


def splits(before: QuotaIndex, after: QuotaIndex, own: Mapping[str, str]) -> bool:
    """Tell whether callers that share a bucket before do not all share one after."""
    shared = resolved(before, own, ANY_OTHER)
    ends = {
        None if new.value is None else tuple(sorted(new.shared_by.items()))
        for name in (*NAMES, ANY_OTHER, f"{ANY_OTHER}s")
        if resolved(before, own, name).shared_by == shared.shared_by
        or resolved(before, own, name).value is shared.value is None
        for new in [resolved(after, own, name)]
    }
    return len(ends) > 1


@given(QUOTAS, QUOTAS, st.sampled_from(("user", "client-id")), st.sampled_from(NAMES))
def test_no_sum_that_is_split_counts_as_whole(
    before: dict[ClientQuotaEntity, dict[str, float]],
    after: dict[ClientQuotaEntity, dict[str, float]],
    kind: str,
    name: str,
):
    indexes, own = (QuotaIndex.of(before), QuotaIndex.of(after)), {kind: name}
    now, new = (resolved(index, own, ANY_OTHER) for index in indexes)
    tags = [ANY_OTHER in each.shared_by.values() for each in (now, new) if each.value is not None]
    levels = [each.source.level if each.source else NEVER for each in (now, new)]
    names = NamesOfQuotas(before, after)
    found = any(tags) or may_split(
        names.levels(KEY.value, own.get("user", ""), own.get("client-id", "")), *levels
    )
    assert found or not splits(*indexes, own)


@given(QUOTAS, st.sampled_from(("user", "client-id")), st.sampled_from(NAMES))
def test_nothing_is_split_where_no_quota_is_altered(
    quotas: dict[ClientQuotaEntity, dict[str, float]], kind: str, name: str
):
    own = {kind: name}
    now = resolved(QuotaIndex.of(quotas), own, ANY_OTHER)
    level = now.source.level if now.source else NEVER
    levels = NamesOfQuotas(quotas, quotas).levels(
        KEY.value, own.get("user", ""), own.get("client-id", "")
    )
    assert not may_split(levels, level, level)
