"""``ClientQuotaAdmin``: what the fake promises, the real broker does."""

import pytest

from app.domain.alterations import Outcome
from app.domain.entities import (
    ALL_ENTITIES,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from app.service.ports.brokers import ClientQuotaAdmin
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.kafka import (
    entity,
    eventually,
    exactly,
    remove_every_quota,
    setting,
    store,
    unique,
    values_of,
)
from tests.testkit.resolution_cases import describe_fixture

exact = ClientQuotaFilterComponent.of_entity
default = ClientQuotaFilterComponent.of_default_entity
specified = ClientQuotaFilterComponent.of_entity_type


@pytest.fixture(params=["fake", "real"])
def admin(request: pytest.FixtureRequest) -> ClientQuotaAdmin:
    if request.param == "fake":
        return FakeBrokers([])
    adapter: ClientQuotaAdmin = request.getfixturevalue("quota_admin")
    return adapter


@pytest.fixture
async def filled(admin: ClientQuotaAdmin) -> ClientQuotaAdmin:
    """The broker with fixture F1 and nothing else."""
    await remove_every_quota(admin)
    fixture = describe_fixture()
    await store(admin, *(setting(each, **values) for each, values in fixture.items()))

    async def stored() -> object:
        return dict((await admin.describe_client_quotas(ALL_ENTITIES)).quotas)

    await eventually(stored, fixture)
    return admin


async def test_what_is_set_is_described_and_what_is_removed_is_gone(admin: ClientQuotaAdmin):
    of = entity(user=unique("user"), client_id=None)
    await store(admin, setting(of, producer_byte_rate=1024, request_percentage=12.5))
    await eventually(
        lambda: values_of(admin, of), {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    )
    await store(admin, setting(of, producer_byte_rate=None, consumer_byte_rate=7))
    await eventually(
        lambda: values_of(admin, of), {"consumer_byte_rate": 7.0, "request_percentage": 12.5}
    )
    await store(admin, setting(of, consumer_byte_rate=None, request_percentage=None))
    await eventually(lambda: values_of(admin, of), {})


async def test_validate_only_validates_and_changes_nothing(admin: ClientQuotaAdmin):
    of = entity(user=unique("user"))
    answer = await admin.alter_client_quotas(
        [setting(of, producer_byte_rate=1024)], validate_only=True
    )
    assert answer.verdicts[of].outcome is Outcome.VALIDATED
    assert await values_of(admin, of) == {}


async def test_every_entity_of_a_request_has_its_verdict(admin: ClientQuotaAdmin):
    entities = [entity(user=unique("user")) for _ in range(20)]
    answer = await admin.alter_client_quotas(
        [setting(each, producer_byte_rate=1024) for each in entities], validate_only=False
    )
    assert {each: verdict.outcome for each, verdict in answer.verdicts.items()} == dict.fromkeys(
        entities, Outcome.APPLIED
    )
    assert answer.sent_at <= answer.answered_at


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ((), False, 13),
        ((), True, 0),
        ((exact("user", "user-1"),), False, 3),
        ((exact("ip", "1.2.3.4"),), True, 1),
        ((default("user"), specified("client-id")), True, 1),
    ],
)
async def test_a_filter_describes_what_kafka_s_rules_say(
    filled: ClientQuotaAdmin,
    components: tuple[ClientQuotaFilterComponent, ...],
    *,
    strict: bool,
    count: int,
):
    quota_filter = ClientQuotaFilter(components, strict)
    described = await filled.describe_client_quotas(quota_filter)
    assert len(described.quotas) == count
    assert described.quotas == {
        each: values for each, values in describe_fixture().items() if quota_filter.matches(each)
    }


@pytest.mark.parametrize(
    "names",
    [
        {"user": "u"},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
        {"user": "u", "client-id": "c"},
        {"user": None, "client-id": "c"},
        {"user": "u", "client-id": None},
        {"user": None, "client-id": None},
    ],
)
async def test_every_entity_shape_makes_the_round_trip(
    admin: ClientQuotaAdmin, names: dict[str, str | None]
):
    of = ClientQuotaEntity.of({kind: name and unique(name) for kind, name in names.items()})
    await remove_every_quota(admin)
    await store(admin, setting(of, controller_mutation_rate=0.5))
    await eventually(lambda: values_of(admin, of), {"controller_mutation_rate": 0.5})
    described = await admin.describe_client_quotas(ALL_ENTITIES)
    assert dict(described.quotas) == {of: {"controller_mutation_rate": 0.5}}
    await store(admin, setting(of, controller_mutation_rate=None))


@pytest.mark.parametrize("name", ["10.1.2.3", "2001:db8:0:0:0:0:0:1", None])
async def test_addresses_make_the_round_trip(admin: ClientQuotaAdmin, name: str | None):
    of = entity(ip=name)
    await store(admin, setting(of, connection_creation_rate=100000))
    await eventually(lambda: values_of(admin, of), {"connection_creation_rate": 100000.0})
    await store(admin, setting(of, connection_creation_rate=None))
    await eventually(lambda: values_of(admin, of), {})


async def test_the_answer_says_which_broker_of_which_cluster_it_is_from(admin: ClientQuotaAdmin):
    cluster_id = await admin.cluster_id()
    live = await admin.live_brokers()
    described = await admin.describe_client_quotas(exactly(entity(user=unique())), broker_id=1)
    assert cluster_id
    assert 1 in live
    assert described.cluster_id == cluster_id
    assert described.broker_id == 1


async def test_the_preferred_broker_is_live_and_answers_requests_for_any_broker(
    admin: ClientQuotaAdmin,
):
    preferred = await admin.preferred_broker()
    assert preferred in await admin.live_brokers()
    for _ in range(5):
        described = await admin.describe_client_quotas(exactly(entity(user=unique())))
        assert described.broker_id == preferred
    assert await admin.preferred_broker() == preferred
