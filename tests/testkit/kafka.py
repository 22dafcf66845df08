"""A real broker for the whole run, and the adapters over it."""

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.filters import ALL_ENTITIES, ClientQuotaFilter, ClientQuotaFilterComponent
from app.kafka.brokers import Brokers
from app.kafka.configuration import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka
from app.localdev.kafka_properties import LocalTls
from app.service.cluster_ports import ClientQuotaAdmin

DEADLINE_S = 30.0

PLAIN_USERS = {"admin": "admin-secret", "nobody": "nobody-secret"}
SCRAM_USERS = {"admin": "admin-scram-secret"}


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> LocalTls:
    """A key and a certificate for 127.0.0.1; the broker trusts what it shows itself."""
    folder = tmp_path_factory.mktemp("broker-tls")
    key, certificate, keystore = (folder / name for name in ("key.pem", "cert.pem", "both.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    keystore.write_text(key.read_text() + certificate.read_text())
    return LocalTls(keystore, certificate)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, tls: LocalTls) -> Iterator[LocalKafka]:
    """One node with ACLs enforced; a test that pauses or kills it brings it back.

    Callers of the PLAINTEXT listener and ``admin`` are super users, ``nobody`` may do nothing.
    """
    with LocalKafka(
        tmp_path_factory.mktemp("broker"),
        plain_users=PLAIN_USERS,
        scram_users=SCRAM_USERS,
        request_log=True,
        tls=tls,
    ) as kafka:
        yield kafka


@pytest.fixture
def kafka_settings(broker: LocalKafka) -> KafkaSettings:
    """How this service reaches the broker, as a super user."""
    return KafkaSettings(broker.bootstrap_servers)


@pytest.fixture
async def brokers(kafka_settings: KafkaSettings) -> AsyncIterator[Brokers]:
    """Connections to the broker."""
    connections = Brokers(kafka_settings)
    yield connections
    await asyncio.wait_for(connections.close(), DEADLINE_S)


@pytest.fixture
async def quota_admin(brokers: Brokers) -> AsyncIterator[KafkaClientQuotaAdmin]:
    """The quota API of the broker."""
    admin = KafkaClientQuotaAdmin(brokers)
    yield admin
    await asyncio.wait_for(admin.close(), DEADLINE_S)


def pause(broker: LocalKafka) -> None:
    """Pause the broker and wait until it has stopped."""
    broker.pause()
    os.waitid(os.P_PID, broker.pid, os.WSTOPPED)


def unique(word: str = "name") -> str:
    """Return a name that no other test uses."""
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
    try:
        async with asyncio.timeout(deadline_s):
            while (seen := await read()) != wanted:
                await asyncio.sleep(0.01)
    except TimeoutError:
        assert seen == wanted


async def until(holds: Callable[[], bool]) -> None:
    """Look again and again until it holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.001)


async def values_of(admin: ClientQuotaAdmin, of: ClientQuotaEntity) -> dict[str, float]:
    """Return what is stored for one entity."""
    described = await admin.describe_client_quotas(exactly(of))
    return dict(described.quotas.get(of, {}))


async def store(admin: ClientQuotaAdmin, *alterations: ClientQuotaAlteration) -> None:
    """Alter, and make sure that the broker did."""
    answer = await admin.alter_client_quotas(alterations, validate_only=False)
    outcomes = {verdict.outcome for verdict in answer.verdicts.values()}
    assert outcomes <= {Outcome.APPLIED}, answer


async def remove_every_quota(admin: ClientQuotaAdmin) -> None:
    """Leave no quota behind."""
    described = await admin.describe_client_quotas(ALL_ENTITIES)
    removals = [setting(each, **dict.fromkeys(values)) for each, values in described.quotas.items()]
    if removals:
        await store(admin, *removals)

    async def left() -> object:
        return dict((await admin.describe_client_quotas(ALL_ENTITIES)).quotas)

    await eventually(left, {})
