"""Decisions from ACLs, and decisions of the broker: how old they are, and what ends them."""

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Op, Outcome
from app.domain.authorization import AclBinding, AuthorizerSettings, Operation
from app.domain.entities import ALL_ENTITIES, Caller, ClientQuotaEntity
from app.domain.errors import BrokerError, NotSentError, Retry
from app.service.auth.actors import CallerQuotaAdmin, RefusedAtTheActError
from app.service.auth.authorize import (
    Access,
    AuthorizationPolicy,
    BrokerAuthorizer,
    ClusterAuthorizer,
)
from app.service.ports.brokers import AclSnapshot, Handover, Rights, Verdict
from app.service.queries.describe import DescribeQuery, DescribeQuotas
from app.service.queries.resolve import Identity, ResolveQuery, ResolveQuotas
from app.service.runtime.tasks import AlterationTasks, SessionTasks
from tests.testkit.event_loops import until_quiet
from tests.testkit.fake_ports import EPOCH, FakeBrokers, FakeImage, fake_actor

ALICE = Caller("User:alice", "127.0.0.1", "bearer")
ADMIN = Caller("User:admin", "127.0.0.1", "bearer")
ALLOW = AclBinding("kafka-cluster", "LITERAL", "User:alice", "*", "ALTER_CONFIGS", "ALLOW")


@dataclass
class Acls:
    bindings: tuple[AclBinding, ...] = ()
    has_authorizer: bool = True
    reachable: bool = True
    asked: list[float] = field(default_factory=list)

    async def get(self, max_age_s: float) -> tuple[AclSnapshot, float]:
        self.asked.append(max_age_s)
        if not self.reachable:
            raise NotSentError("No ACLs.", code="acl-source-unreachable")
        return AclSnapshot(self.bindings, self.has_authorizer), 1.5


@dataclass
class World:
    acls: Acls
    insecure: bool = False

    def __post_init__(self) -> None:
        policy = AuthorizationPolicy(
            AuthorizerSettings(frozenset({"User:admin"})),
            allow_without_authorizer=self.insecure,
            auditors=frozenset({"User:auditor"}),
        )
        self.authorizer = ClusterAuthorizer(self.acls, policy)

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        return await self.authorizer.decide(caller, operation)


async def test_the_evidence_has_the_rule_and_the_age_of_the_acls() -> None:
    world = World(Acls((ALLOW,)))
    access = await world.decide(ALICE, Operation.ALTER_CONFIGS)
    assert access.refusal is None
    assert access.evidence["rule"] == "allow-acl"
    assert access.evidence["acl_age_s"] == 1.5
    assert "principal=User:alice" in access.evidence["acl"]


async def test_acls_are_at_most_ten_seconds_old_for_alter_and_sixty_for_reads() -> None:
    world = World(Acls((ALLOW,)))
    await world.decide(ALICE, Operation.ALTER_CONFIGS)
    await world.decide(ALICE, Operation.DESCRIBE_CONFIGS)
    assert world.acls.asked == [10.0, 60.0]


async def test_nobody_but_a_super_user_passes_while_the_acls_cannot_be_had() -> None:
    world = World(Acls((ALLOW,), reachable=False))
    with pytest.raises(NotSentError):
        await world.decide(ALICE, Operation.DESCRIBE_CONFIGS)
    access = await world.decide(ADMIN, Operation.ALTER_CONFIGS)
    assert (access.refusal, access.evidence["rule"]) == (None, "super-user")


async def test_a_cluster_without_an_authorizer_is_refused_even_to_super_users() -> None:
    world = World(Acls(has_authorizer=False))
    for caller in (ALICE, ADMIN):
        access = await world.decide(caller, Operation.DESCRIBE_CONFIGS)
        assert access.refusal is not None
        assert (access.refusal.code, access.refusal.kafka_error) == (
            "no-authorizer",
            "SECURITY_DISABLED",
        )


async def test_a_refusal_is_in_kafkas_words_and_says_which_rule_decided() -> None:
    world = World(Acls())
    access = await world.decide(ALICE, Operation.ALTER_CONFIGS)
    assert access.refusal is not None
    assert access.refusal.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
    assert access.evidence["rule"] == "no-acl-found"


ALICE_BY_PASSWORD = Caller("User:alice", "127.0.0.1", "basic")
DENIED = "CLUSTER_AUTHORIZATION_FAILED"
ENTITY = ClientQuotaEntity.of({"user": "x"})
CHANGE = ClientQuotaAlteration(ENTITY, (Op("producer_byte_rate", remove=True),))


@dataclass
class FakeRights:
    allowed: bool = True
    has_authorizer: bool = True
    reachable: bool = True
    asked: list[tuple[Operation, float]] = field(default_factory=list)
    forgotten: int = 0

    async def rights(self, operation: Operation, *, max_age_s: float) -> Rights:
        self.asked.append((operation, max_age_s))
        if not self.reachable:
            raise NotSentError("Nobody answers.", code="acl-source-unreachable")
        return Rights(self.allowed, "DescribeCluster", 1.5, self.has_authorizer)

    def forget(self) -> None:
        self.forgotten += 1


class NoAcls:
    async def get(self, max_age_s: float) -> tuple[AclSnapshot, float]:
        raise AssertionError("the broker decides")


@pytest.fixture
def rights() -> FakeRights:
    return FakeRights()


def authorizer(rights: FakeRights, *, insecure: bool = False) -> BrokerAuthorizer:
    policy = AuthorizationPolicy(
        AuthorizerSettings(frozenset({"User:alice"})),
        allow_without_authorizer=insecure,
        auditors=frozenset({"User:auditor"}),
    )
    others = ClusterAuthorizer(NoAcls(), policy)
    return BrokerAuthorizer(rights, others)


async def test_the_broker_s_word_is_the_decision(rights: FakeRights) -> None:
    judge = authorizer(rights)
    access = await judge.decide(ALICE_BY_PASSWORD, Operation.ALTER_CONFIGS)
    assert access.refusal is None
    assert access.evidence["rule"] == "broker"
    assert (access.evidence["asked"], access.evidence["acl_age_s"]) == ("DescribeCluster", 1.5)
    rights.allowed = False
    refusal = (await judge.decide(ALICE_BY_PASSWORD, Operation.DESCRIBE_CONFIGS)).refusal
    assert refusal is not None, "the settings' super users are no super users here"
    assert refusal.kafka_error == DENIED
    assert "User:alice lacks DESCRIBE_CONFIGS" in refusal.detail
    assert rights.asked == [(Operation.ALTER_CONFIGS, 10.0), (Operation.DESCRIBE_CONFIGS, 60.0)]


@pytest.mark.parametrize("by_password", [True, False])
def test_auditors_are_those_of_the_settings(rights: FakeRights, by_password: bool) -> None:
    judge = authorizer(rights) if by_password else World(Acls()).authorizer
    assert judge.is_auditor(replace(ALICE, principal="User:auditor"))
    assert not judge.is_auditor(ALICE)


async def test_nobody_passes_on_doubt(rights: FakeRights) -> None:
    rights.reachable = False
    with pytest.raises(NotSentError):
        await authorizer(rights).decide(ALICE_BY_PASSWORD, Operation.DESCRIBE_CONFIGS)


@pytest.mark.parametrize("insecure", [False, True])
async def test_a_cluster_without_an_authorizer_is_everybody_s_or_nobody_s(
    rights: FakeRights, insecure: bool
) -> None:
    rights.has_authorizer = False
    judge = authorizer(rights, insecure=insecure)
    access = await judge.decide(ALICE_BY_PASSWORD, Operation.ALTER_CONFIGS)
    assert access.evidence["rule"] == "no-authorizer"
    assert (access.refusal is None) is insecure


class Refusing(FakeBrokers):
    """Refuses its caller everything."""

    async def describe_client_quotas(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise BrokerError("own account", code="service-account-not-authorized", kafka_error=DENIED)

    async def alter_client_quotas(self, *_: object, **__: object) -> Handover:  # type: ignore[override]
        error = KafkaRefusal(DENIED, "Give this service's own account the ACL.")
        return Handover({ENTITY: Verdict(Outcome.REFUSED, error)}, 1, EPOCH, EPOCH)


async def test_a_refusal_at_the_act_is_the_caller_s_and_ends_what_was_believed(
    rights: FakeRights,
) -> None:
    admin = CallerQuotaAdmin(Refusing([]), rights, "User:alice")
    with pytest.raises(RefusedAtTheActError) as caught:
        await admin.describe_client_quotas(ALL_ENTITIES)
    assert caught.value.code == "cluster-authorization-failed"
    assert caught.value.retry is Retry.NEVER
    answer = await admin.alter_client_quotas([CHANGE], validate_only=False)
    error = answer.verdicts[ENTITY].error
    assert error is not None
    assert "User:alice lacks ALTER_CONFIGS" in error.message
    assert "own account" not in error.message
    assert rights.forgotten == 2


async def test_other_answers_pass_as_they_are(rights: FakeRights) -> None:
    brokers = FakeBrokers([])
    admin = CallerQuotaAdmin(brokers, rights, "User:alice")
    assert (await admin.describe_client_quotas(ALL_ENTITIES)).quotas == {}
    answer = await admin.alter_client_quotas([CHANGE], validate_only=True)
    assert answer.verdicts[ENTITY].outcome is Outcome.VALIDATED
    assert rights.forgotten == 0


async def test_a_record_is_read_as_the_service_where_the_caller_may_not(rights: FakeRights) -> None:
    as_service = FakeBrokers([])
    as_service.quotas = {ENTITY: {"producer_byte_rate": 1.0}}
    for_record = CallerQuotaAdmin(Refusing([]), rights, "User:alice", stand_in=as_service)
    described = await for_record.describe_client_quotas(ALL_ENTITIES)
    assert described.quotas == as_service.quotas


async def test_the_newest_image_is_the_caller_s_own(rights: FakeRights) -> None:
    as_caller = CallerQuotaAdmin(Refusing([]), rights, "User:alice")
    describe_now = partial(as_caller.describe_client_quotas, ALL_ENTITIES)
    image = FakeImage(FakeBrokers([]))
    describing, resolving = DescribeQuotas(image), ResolveQuotas(image)
    actor = fake_actor(FakeBrokers([]), reader=as_caller, describe_now=describe_now)
    alice = (Identity(user="alice"),)
    assert not (await describing.describe(actor, DescribeQuery(max_age_ms=1000))).entries
    assert await resolving.basis(actor, ResolveQuery(alice, max_age_ms=1000))
    with pytest.raises(RefusedAtTheActError):
        await describing.describe(actor, DescribeQuery())
    with pytest.raises(RefusedAtTheActError):
        await resolving.basis(actor, ResolveQuery(alice, max_age_ms=0))


async def test_held_tasks_know_when_the_last_has_ended() -> None:
    tasks = AlterationTasks()
    held = SessionTasks(tasks)
    await held.quiet()
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    waiting = asyncio.create_task(held.run(work()))
    await until_quiet()
    quiet = asyncio.create_task(held.quiet())
    await until_quiet()
    assert not quiet.done()
    waiting.cancel()
    await until_quiet()
    assert not quiet.done(), "the caller went away, the alteration goes on"
    gate.set()
    async with asyncio.timeout(30):
        await quiet


async def test_held_tasks_are_not_quiet_between_an_alteration_and_its_late_answer() -> None:
    tasks = AlterationTasks()
    held = SessionTasks(tasks)
    gate, late = asyncio.Event(), asyncio.Event()

    async def listen() -> None:
        await late.wait()

    async def work() -> None:
        await gate.wait()
        held.watch(listen())

    waiting = asyncio.create_task(held.run(work()))
    await until_quiet()
    quiet = asyncio.create_task(held.quiet())
    await until_quiet()
    gate.set()
    await waiting
    await until_quiet()
    assert not quiet.done(), "the connection that the answer comes on must stay open"
    late.set()
    async with asyncio.timeout(30):
        await quiet


async def test_held_tasks_that_are_stopped_before_they_begin_are_held_no_longer() -> None:
    tasks = AlterationTasks()
    held = SessionTasks(tasks)

    async def listen() -> None:
        raise AssertionError("it must not run")

    held.watch(listen())
    await tasks.drain(30)
    async with asyncio.timeout(30):
        await held.quiet()


async def test_held_tasks_take_no_more_than_the_application_does() -> None:
    tasks = AlterationTasks()
    tasks.refuse_new()

    async def work() -> None:
        raise AssertionError("it must not run")

    with pytest.raises(NotSentError):
        await SessionTasks(tasks).run(work())
