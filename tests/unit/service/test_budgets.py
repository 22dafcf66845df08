"""What an alteration pays for budgets: nothing where it touches none, one lock and a read else."""

from decimal import Decimal

from app.domain.authorization import Policy
from app.domain.budgets import Budget
from app.domain.entities import ALL_ENTITIES, Caller, ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import ClusterAuthorizationError
from app.metrics import Instruments, PolicyMetrics
from app.service.auth.authorize import NarrowingPolicy
from app.service.auth.denials import DeniedAttempt
from app.service.ports.brokers import Described
from tests.testkit.fake_ports import FakeBrokers
from tests.unit.service.conftest import ALICE, BOB, KEY, World, setting

TEAM = ClientQuotaEntity.of({"user": "team-1"})
BY_PREFIX = Budget("prefix", {KEY: Decimal(100)}, "team-")
BY_NAME = Budget("name", {KEY: Decimal(100)}, frozenset({"bob", "carol"}))


async def _record(_: Caller, __: ClusterAuthorizationError, ___: DeniedAttempt) -> None:
    raise AssertionError("a budget is no denial")


def with_budgets(world: World) -> list[ClientQuotaFilter]:
    """Let a policy of two budgets bind everybody; return what brokers are asked from now on."""
    policy = Policy((), others_may=True, budgets=(BY_PREFIX, BY_NAME))
    metrics = PolicyMetrics(Instruments())
    world.service.policy = NarrowingPolicy(lambda: policy, policy, _record, metrics)
    asked: list[ClientQuotaFilter] = []
    describe = FakeBrokers.describe_client_quotas

    async def noting(quota_filter: ClientQuotaFilter, **options: float | None) -> Described:
        asked.append(quota_filter)
        return await describe(world.brokers, quota_filter, **options)  # type: ignore[arg-type]

    world.brokers.describe_client_quotas = noting  # type: ignore[method-assign]
    return asked


async def locked_and_asked(
    world: World, entity: ClientQuotaEntity
) -> tuple[list[ClientQuotaEntity], set[ClientQuotaFilter]]:
    asked = with_budgets(world)
    await world.alter(setting(entity, "7"))
    (intent,) = world.journal.intents
    return list(intent.locked), set(asked)


async def test_an_alteration_of_no_budget_locks_and_reads_its_own_entity_alone(world: World):
    locked, asked = await locked_and_asked(world, ALICE)
    assert locked == [ALICE]
    assert asked == {ClientQuotaFilter.of(ALICE)}


async def test_a_prefix_is_read_with_one_describe_of_everything(world: World):
    locked, asked = await locked_and_asked(world, TEAM)
    assert locked == [TEAM, BY_PREFIX.lock]
    assert asked == {ALL_ENTITIES, ClientQuotaFilter.of(TEAM)}  # the second waits until it shows


async def test_names_are_read_each_by_itself(world: World):
    locked, asked = await locked_and_asked(world, BOB)
    assert locked == [BOB, BY_NAME.lock]
    assert asked == {ClientQuotaFilter.of(BOB), *BY_NAME.filters}
    assert len(BY_NAME.filters) == 2
