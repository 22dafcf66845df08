"""A real broker for the whole run, and the adapters over it."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.x509.oid import NameOID

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.entities import (
    ALL_ENTITIES,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings, SaslMechanism, SecurityProtocol
from app.kafka.quota_admin import KafkaClientQuotaAdmin, KafkaMetadataQuorum
from app.localdev.kafka import LocalKafka, LocalTls
from app.metrics import BrokerMetrics
from app.service.alterations.barrier import Barrier, CurrentValues
from app.service.ports.brokers import ClientQuotaAdmin, Handover
from app.service.runtime.clock import AdaptiveDeadline, Patience
from tests.testkit.accounts import allow
from tests.testkit.authorization import JUDGED, PASSWORD, SUPER_USERS
from tests.testkit.certificates import Authority
from tests.testkit.class_archive import shared_classes
from tests.testkit.history.events import NO_LINGER
from tests.testkit.patience import DEADLINE_S, PATIENT, pauses
from tests.testkit.service import acl

PLAIN_USERS = {
    **dict.fromkeys(JUDGED, PASSWORD),
    "admin": "admin-secret",
    "nobody": "nobody-secret",
}
SCRAM_USERS = {"admin": "admin-scram-secret"}
MAPPING_RULES: Final = "RULE:^CN=([a-z]+),OU=Mapped,.*$/$1@example/U,DEFAULT"
"""How the broker makes user names of the subjects of certificates."""

LOCALHOST: Final = "127.0.0.1 localhost\n"


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> LocalTls:
    """A key and a certificate for 127.0.0.1; the broker trusts what the authority signs."""
    folder = tmp_path_factory.mktemp("broker-tls")
    (folder / "authority.pem").write_text(authority.own.pem)
    broker = authority.sign(((NameOID.COMMON_NAME, "broker"),), host="127.0.0.1")
    return LocalTls(broker.write(folder / "broker.pem"), folder / "authority.pem")


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which the broker looks names up, each time anew; it has no other source."""
    path = tmp_path_factory.mktemp("broker-hosts") / "hosts"
    path.write_text(LOCALHOST)
    path.with_name("security").write_text(
        "networkaddress.cache.ttl=0\nnetworkaddress.cache.negative.ttl=0\n"
    )
    return path


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory, tls: LocalTls, hosts: Path
) -> Iterator[LocalKafka]:
    """One node with ACLs enforced; a test that pauses or kills it brings it back.

    Callers of the PLAINTEXT listener and ``admin`` are super users, ``nobody`` may do nothing,
    alice may alter and bob describe. A test that adds ACLs adds them for users of its own.
    """
    with LocalKafka(
        tmp_path_factory.mktemp("broker"),
        super_users=f"User:ANONYMOUS;User:admin;{SUPER_USERS}",
        plain_users=PLAIN_USERS,
        scram_users=SCRAM_USERS,
        extra_properties={**NO_LINGER, "ssl.principal.mapping.rules": MAPPING_RULES},
        request_log=True,
        tls=tls,
        java_options=(
            *shared_classes(),
            f"-Djdk.net.hosts.file={hosts}",
            f"-Djava.security.properties={hosts.with_name('security')}",
        ),
    ) as kafka:
        allow(
            kafka,
            acl("alice", "ALTER_CONFIGS"),
            acl("alice", "DESCRIBE"),
            acl("bob", "DESCRIBE_CONFIGS"),
            acl("bob", "DESCRIBE"),
        )
        yield kafka


@pytest.fixture
def kafka_settings(broker: LocalKafka) -> KafkaSettings:
    return KafkaSettings(broker.bootstrap_servers)


@pytest.fixture
async def brokers(kafka_settings: KafkaSettings) -> AsyncIterator[Brokers]:
    async with brokers_of(kafka_settings) as connections:
        yield connections


@pytest.fixture
async def quota_admin(brokers: Brokers) -> AsyncIterator[KafkaClientQuotaAdmin]:
    admin = KafkaClientQuotaAdmin(brokers)
    yield admin
    await asyncio.wait_for(admin.close(), DEADLINE_S)


@asynccontextmanager
async def brokers_of(
    servers: KafkaSettings | str,
    metrics: BrokerMetrics | None = None,
    patience: Patience = PATIENT,
) -> AsyncIterator[Brokers]:
    """Keep connections to these bootstrap servers for the block."""
    settings = KafkaSettings(servers) if isinstance(servers, str) else servers
    connections = Brokers(settings, metrics, patience=patience)
    try:
        yield connections
    finally:
        await asyncio.wait_for(connections.close(), DEADLINE_S)


@asynccontextmanager
async def admin_of(servers: KafkaSettings | str) -> AsyncIterator[KafkaClientQuotaAdmin]:
    """Give the quota API of these bootstrap servers for the block."""
    async with brokers_of(servers) as connections:
        admin = KafkaClientQuotaAdmin(connections)
        try:
            yield admin
        finally:
            await asyncio.wait_for(admin.close(), DEADLINE_S)


def barrier_of(brokers: Brokers, admin: ClientQuotaAdmin) -> Barrier:
    """Return a barrier that is as patient as the connections of these tests."""
    present = CurrentValues(admin, AdaptiveDeadline(PATIENT.broker_answer_s))
    return Barrier(KafkaMetadataQuorum(brokers), present)


def as_user(broker: LocalKafka, name: str) -> KafkaSettings:
    """Return the settings that log in with the password of one of ``PLAIN_USERS``."""
    return KafkaSettings(
        broker.sasl_bootstrap_servers,
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.PLAIN,
        sasl_username=name,
        sasl_password=PLAIN_USERS[name],
    )


def pause(broker: LocalKafka) -> None:
    """Pause the broker and wait until it has stopped."""
    broker.pause()
    os.waitid(os.P_PID, broker.pid, os.WSTOPPED)


def unique(word: str = "name") -> str:
    return f"{word}-{uuid.uuid4().hex[:12]}"


def entity(**names: str | None) -> ClientQuotaEntity:
    """Build an entity; ``client_id`` stands for ``client-id``."""
    return ClientQuotaEntity.of({kind.replace("_", "-"): name for kind, name in names.items()})


def setting(of: ClientQuotaEntity, **values: float | str | None) -> ClientQuotaAlteration:
    """Set each key to its value; null removes it."""
    return ClientQuotaAlteration(
        of,
        tuple(
            Op(key, remove=True) if value is None else Op(key, Decimal(value))
            for key, value in values.items()
        ),
    )


def exactly(of: ClientQuotaEntity) -> ClientQuotaFilter:
    """Return the strict filter that describes this entity alone."""
    return ClientQuotaFilter(
        tuple(
            ClientQuotaFilterComponent.of_default_entity(kind)
            if name is None
            else ClientQuotaFilterComponent.of_entity(kind, name)
            for kind, name in of.entries
        ),
        strict=True,
    )


async def eventually(
    read: Callable[[], Awaitable[object]], wanted: object, deadline_s: float = DEADLINE_S
) -> None:
    """Read until the wanted value shows: a describe may be older than an answered alter."""
    seen: object = None
    pause = pauses()
    try:
        async with asyncio.timeout(deadline_s):
            while (seen := await read()) != wanted:
                await asyncio.sleep(next(pause))
    except TimeoutError:
        assert seen == wanted


async def values_of(admin: ClientQuotaAdmin, of: ClientQuotaEntity) -> dict[str, float]:
    described = await admin.describe_client_quotas(exactly(of))
    return dict(described.quotas.get(of, {}))


async def alter(
    admin: ClientQuotaAdmin, *entities: ClientQuotaEntity, value: float = 1.0, **options: Any
) -> Handover:
    """Set one key of each entity; ``options`` are those of the port."""
    alterations = [setting(of, producer_byte_rate=value) for of in entities]
    return await admin.alter_client_quotas(alterations, **{"validate_only": False, **options})


def outcomes_of(answer: Handover) -> list[Outcome]:
    return [verdict.outcome for verdict in answer.verdicts.values()]


async def store(admin: ClientQuotaAdmin, *alterations: ClientQuotaAlteration) -> None:
    answer = await admin.alter_client_quotas(alterations, validate_only=False)
    assert set(outcomes_of(answer)) <= {Outcome.APPLIED}, answer


async def remove_every_quota(admin: ClientQuotaAdmin) -> None:
    described = await admin.describe_client_quotas(ALL_ENTITIES)
    removals = [setting(each, **dict.fromkeys(values)) for each, values in described.quotas.items()]
    if removals:
        await store(admin, *removals)

    async def left() -> object:
        return dict((await admin.describe_client_quotas(ALL_ENTITIES)).quotas)

    await eventually(left, {})
