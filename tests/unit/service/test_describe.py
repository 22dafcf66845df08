"""An arranged image gives what a look at every entity would give."""

import asyncio
import itertools
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.alterations import Quotas
from app.domain.entities import (
    ALL_ENTITIES,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from app.domain.resolution_index import QuotaIndex
from app.http.query_params import parse_filter
from app.service.ports.brokers import Described, QuotaChanges
from app.service.queries import describe as arranging
from app.service.queries import resolve as indexing
from app.service.queries.describe import (
    DescribeQuery,
    DescribeQuotas,
    Entry,
    SortedSnapshot,
    SortedSnapshots,
    matching,
)
from app.service.queries.resolve import IndexCache, QuotaImage
from tests.testkit.fake_ports import EPOCH, changes_between, fake_actor, no_callback

NAMES = st.none() | st.sampled_from(["a", "ab", "b", "<default>", ""])
KINDS = st.sampled_from(["user", "client-id", "ip", "of another time"])
ENTITIES = st.dictionaries(KINDS, NAMES, min_size=1, max_size=3).map(ClientQuotaEntity.of)
KEYS = st.sampled_from(["producer_byte_rate", "connection_creation_rate"])
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(KEYS, st.floats(1, 9)), max_size=12)
SHAPES = [("user",), ("client-id",), ("user", "client-id"), ("ip",), ("of another time",)]
STORABLE = st.sampled_from(SHAPES).flatmap(
    lambda kinds: st.fixed_dictionaries(dict.fromkeys(kinds, NAMES)).map(ClientQuotaEntity.of)
)
"""What brokers store: an ip is beside nothing else, so one name is one rule."""

STORED = st.dictionaries(STORABLE, st.dictionaries(KEYS, st.floats(1, 9), min_size=1), max_size=12)
COMPONENTS = st.one_of(
    st.builds(ClientQuotaFilterComponent.of_entity, KINDS, st.sampled_from(["a", "ab", "none"])),
    st.builds(ClientQuotaFilterComponent.of_default_entity, KINDS),
    st.builds(ClientQuotaFilterComponent.of_entity_type, KINDS),
)
FILTERS = st.builds(
    ClientQuotaFilter,
    st.lists(COMPONENTS, max_size=3, unique_by=lambda item: item.entity_type).map(tuple),
    st.booleans(),
)


def in_order(quotas: Quotas) -> tuple[Entry, ...]:
    return tuple(sorted(quotas.items(), key=lambda entry: entry[0].sort_key()))


def described(quotas: Quotas, changes: QuotaChanges | None = None) -> Described:
    return Described(quotas, EPOCH, "cluster", 1, changes)


@given(QUOTAS, FILTERS, st.sampled_from([(), ("producer_byte_rate",), ("none", "nothing")]))
def test_what_matches_is_what_a_look_at_every_entity_finds(
    quotas: Mapping[ClientQuotaEntity, Mapping[str, float]],
    quota_filter: ClientQuotaFilter,
    has_key: tuple[str, ...],
):
    expected = in_order(
        {
            key: values
            for key, values in quotas.items()
            if quota_filter.matches(key) and (not has_key or set(has_key) & set(values))
        }
    )
    arranged = SortedSnapshot(quotas)
    assert matching(arranged, quota_filter, has_key) == expected
    assert matching(arranged, quota_filter, has_key) == expected
    assert arranged.work_for(quota_filter) <= max(1, len(quotas))


@given(st.sampled_from([0, 100]), st.lists(QUOTAS, min_size=2, max_size=4))
async def test_an_order_that_is_patched_is_the_order(
    few: int, worlds: list[Mapping[ClientQuotaEntity, Mapping[str, float]]]
):
    before = arranging.FEW_CHANGES
    arranging.FEW_CHANGES = few
    try:
        images = SortedSnapshots()
        first = await images.in_order(described(worlds[0]))
        assert comparable(first.entries) == comparable(in_order(worlds[0]))
        for old, new in itertools.pairwise(worlds):
            found = await images.in_order(described(new, changes_between(old, new)))
            assert comparable(found.entries) == comparable(in_order(new))
    finally:
        arranging.FEW_CHANGES = before


def comparable(entries: tuple[Entry, ...] | None) -> list[object]:
    """Entities that differ only in unknown types are equal in the order."""
    assert entries is not None
    return [
        (entity.sort_key(), sorted(map(repr, group)))
        for entity, group in (
            (item, [two for two in entries if same(item, two)]) for item, _ in entries
        )
    ]


def same(entity: ClientQuotaEntity, entry: Entry) -> bool:
    return entry[0].sort_key() == entity.sort_key()


async def test_the_same_quotas_are_arranged_once():
    images, quotas = SortedSnapshots(), {ClientQuotaEntity.of({"user": "a"}): {"k": 1.0}}
    first = await images.in_order(described(quotas))
    assert await images.in_order(described(quotas)) is first
    assert images.of(described(quotas)) is first
    assert images.of(described(dict(quotas))) is not first


@given(st.sampled_from([0, 3, 100]), st.booleans(), st.lists(STORED, min_size=2, max_size=5))
@example(
    0,
    False,
    [{ClientQuotaEntity.of({"ip": None}): {"of another time": 1.0}} for _ in range(2)],
)
async def test_an_index_with_changes_laid_over_it_is_the_index_of_the_quotas(
    most: int, skips: bool, worlds: list[Mapping[ClientQuotaEntity, Mapping[str, float]]]
):
    before = indexing.MAX_OVERLAY
    indexing.MAX_OVERLAY = most
    try:
        indexes = IndexCache(no_callback)
        await indexes.of(described(worlds[0]))
        for old, new in itertools.pairwise(worlds):
            changes = None if skips else changes_between(old, new)
            index = (await indexes.of(described(new, changes))).index
            fresh = (await IndexCache(no_callback).of(described(new))).index
            for user in ("a", "ab", ""):
                for client_id in ("a", "<default>", "z"):
                    found = index.client_values(user, client_id)
                    assert {key: quotas for key, quotas in found.items() if quotas} == (
                        fresh.client_values(user, client_id)
                    )
            assert index.number_laid_over <= most
            if not index.number_laid_over:
                assert index.rules.keys() == {at for at, (_, held) in fresh.rules.items() if held}
                assert {*index.spellings} == {at for at, held in fresh.spellings.items() if held}
            assert index.counts == fresh.counts
            assert index.host_names == fresh.host_names
    finally:
        indexing.MAX_OVERLAY = before


async def test_callers_who_need_the_same_index_build_it_once(monkeypatch: pytest.MonkeyPatch):
    quotas = {ClientQuotaEntity.of({"user": f"user-{each}"}): {"k": 1.0} for each in range(1000)}
    build, built = QuotaIndex.of, []

    def counted(all_of_them: Quotas) -> QuotaIndex:
        built.append(all_of_them)
        return build(all_of_them)

    monkeypatch.setattr(QuotaIndex, "of", counted)
    indexes = IndexCache(no_callback)
    images = await asyncio.gather(*(indexes.of(described(quotas)) for _ in range(20)))
    assert len({id(image.index) for image in images}) == len(built) == 1


class AskedBrokers:
    """Notes which filters brokers are asked with; nothing is stored."""

    def __init__(self) -> None:
        self.asked: list[ClientQuotaFilter] = []

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter, **_options: object
    ) -> Described:
        self.asked.append(quota_filter)
        return described({})


@pytest.mark.parametrize("max_age_ms", [0, 60_000])
async def test_brokers_select_by_names_alone_and_describe_all_for_everything_else(
    subtests: pytest.Subtests, max_age_ms: int
):
    named, others = ["user=a", "user:default"], ["user", "user^=a", "user~=a", "user:absent"]
    cases = [
        *(([name, *more], True) for name in named for more in ([], ["client-id^=b"])),
        *(([other], False) for other in others),
        (["user^=a", "client-id~=b"], False),
        ([], False),
    ]
    for components, is_selected in cases:
        with subtests.test(components=components):
            brokers = AskedBrokers()
            image = QuotaImage(brokers, no_callback)
            wanted = parse_filter(tuple(components))
            query = DescribeQuery(wanted, ("producer_byte_rate",), max_age_ms)
            actor = fake_actor(brokers, describe_now=image.now)
            await DescribeQuotas(image).describe(actor, query)
            asked = wanted.for_broker() if is_selected else ALL_ENTITIES
            assert brokers.asked[-1 if is_selected else 0] == asked
            assert is_selected or brokers.asked == [ALL_ENTITIES]
            await image.close()
