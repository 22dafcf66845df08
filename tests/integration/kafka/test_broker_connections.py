"""Connections with every security protocol and mechanism, and every refusal."""

import asyncio
import socket
import threading
import time
from dataclasses import replace

import pytest
import uvloop

from app.domain.alterations import Outcome
from app.domain.entities import ALL_ENTITIES, ClientQuotaFilter, ClientQuotaFilterComponent
from app.domain.errors import BrokerError, InvalidRequestError, NotSentError, Sent
from app.kafka.cluster_facts import scram_users
from app.kafka.config import KafkaSettings, SaslMechanism, SecurityProtocol
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.localdev.kafka import LocalKafka, LocalTls
from tests.testkit.accounts import DEADLINE_S, set_scram_users
from tests.testkit.kafka import (
    PLAIN_USERS,
    SCRAM_USERS,
    admin_of,
    as_user,
    brokers_of,
    entity,
    setting,
    unique,
    values_of,
)


def settings_for(broker: LocalKafka, tls: LocalTls, protocol: str, mechanism: str) -> KafkaSettings:
    addresses = {
        "PLAINTEXT": broker.bootstrap_servers,
        "SSL": broker.address("SSL"),
        "SASL_PLAINTEXT": broker.sasl_bootstrap_servers,
        "SASL_SSL": broker.address("SASL_SSL"),
    }
    users = PLAIN_USERS if mechanism == "PLAIN" else SCRAM_USERS
    return KafkaSettings(
        addresses[protocol],
        security_protocol=SecurityProtocol(protocol),
        sasl_mechanism=SaslMechanism(mechanism),
        sasl_username="admin",
        sasl_password=users["admin"],
        ssl_ca_file=str(tls.truststore_file),
    )


async def describe_through(settings: KafkaSettings) -> None:
    async with admin_of(settings) as admin:
        await admin.describe_client_quotas(ALL_ENTITIES)


@pytest.fixture(scope="module", autouse=True)
def passwords(broker: LocalKafka, tls: LocalTls) -> None:
    """Set the passwords anew: a broker may forget a password when others change.

    Seen on 4.3.1, after credentials of other users were deleted.
    """
    set_scram_users(broker.bootstrap_servers, SCRAM_USERS)
    deadline = time.monotonic() + DEADLINE_S
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        while not asyncio.run(is_let_in(settings_for(broker, tls, "SASL_PLAINTEXT", mechanism))):
            assert time.monotonic() < deadline, f"{mechanism} lets nobody in"


async def is_let_in(settings: KafkaSettings) -> bool:
    try:
        await describe_through(settings)
    except NotSentError:
        return False
    return True


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_each_sasl_mechanism_lets_the_service_in(
    broker: LocalKafka, tls: LocalTls, protocol: str, mechanism: str
):
    of = entity(user=unique())
    async with admin_of(settings_for(broker, tls, protocol, mechanism)) as admin:
        answer = await admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=True
        )
        assert answer.verdicts[of].outcome is Outcome.VALIDATED
        assert await admin.cluster_id() == broker.cluster_id


async def test_tls_with_a_client_certificate_lets_the_service_in(broker: LocalKafka, tls: LocalTls):
    settings = replace(
        settings_for(broker, tls, "SSL", "PLAIN"), ssl_cert_file=str(tls.keystore_file)
    )
    with pytest.raises(BrokerError) as caught:
        await describe_through(settings)
    # The certificate's subject is a principal without any right: it was looked at.
    assert caught.value.code == "service-account-not-authorized"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_a_request_that_was_not_sent(
    broker: LocalKafka, tls: LocalTls, mechanism: str
):
    settings = replace(
        settings_for(broker, tls, "SASL_PLAINTEXT", mechanism), sasl_password="wrong-secret"
    )
    with pytest.raises(NotSentError, match="SASL was refused") as caught:
        await describe_through(settings)
    assert caught.value.code == "cluster-unreachable"
    assert "wrong-secret" not in caught.value.detail


async def test_whatever_is_not_the_broker_that_is_meant_gets_nothing_sent(
    broker: LocalKafka, tls: LocalTls, subtests: pytest.Subtests
):
    fits, refused = settings_for(broker, tls, "SSL", "PLAIN"), "CERTIFICATE_VERIFY_FAILED"
    elsewhere = f"localhost:{fits.addresses[0][1]}"
    for case, settings, words in (
        ("an unknown authority", replace(fits, ssl_ca_file=None), refused),
        ("a name that is not certified", replace(fits, bootstrap_servers=elsewhere), refused),
        ("no TLS", replace(fits, bootstrap_servers=broker.bootstrap_servers), "cannot be reached"),
        ("no such host", KafkaSettings("no-such-host.invalid:9092"), r"no-such-host\.invalid"),
    ):
        with subtests.test(case), pytest.raises(NotSentError, match=words):
            await describe_through(settings)


async def test_a_port_where_nobody_listens_is_a_request_that_was_not_sent():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with admin_of(f"127.0.0.1:{port}") as admin:
            with pytest.raises(NotSentError) as caught:
                await admin.describe_client_quotas(ALL_ENTITIES)
            assert caught.value.code == "cluster-unreachable"
            assert caught.value.sent is Sent.NO
            with pytest.raises(NotSentError):
                await admin.alter_client_quotas(
                    [setting(entity(user="u"), producer_byte_rate=1)], validate_only=False
                )
            with pytest.raises(NotSentError):
                await admin.live_brokers()


async def test_one_dead_bootstrap_server_does_not_matter(broker: LocalKafka):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        for servers in (f"{dead},{broker.bootstrap_servers}", f"{broker.bootstrap_servers},{dead}"):
            await describe_through(KafkaSettings(servers))


async def test_a_broker_that_is_not_in_the_cluster_cannot_be_asked(
    quota_admin: KafkaClientQuotaAdmin,
):
    with pytest.raises(NotSentError, match="Broker 99 is not among the live brokers"):
        await quota_admin.describe_client_quotas(ALL_ENTITIES, broker_id=99)


async def test_an_account_without_rights_gets_an_error_that_names_the_acl(broker: LocalKafka):
    of, lacks = entity(user=unique()), "DESCRIBE_CONFIGS on Cluster kafka-cluster"
    async with admin_of(as_user(broker, "nobody")) as admin:
        with pytest.raises(BrokerError, match=lacks) as caught:
            await admin.describe_client_quotas(ALL_ENTITIES)
        answer = await admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=False
        )
    assert caught.value.code == "service-account-not-authorized"
    assert caught.value.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
    verdict = answer.verdicts[of]
    assert verdict.outcome is Outcome.REFUSED
    assert verdict.error is not None
    assert verdict.error.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
    assert "ALTER_CONFIGS on Cluster kafka-cluster" in verdict.error.message


async def test_a_denied_listing_of_scram_credentials_is_answered(broker: LocalKafka):
    async with brokers_of(as_user(broker, "nobody")) as brokers:
        # A broker that does not respond is a NotSentError.
        with pytest.raises(BrokerError, match="DESCRIBE on Cluster kafka-cluster") as caught:
            await scram_users(brokers)
    assert caught.value.code == "service-account-not-authorized"


of_entity = ClientQuotaFilterComponent.of_entity


async def test_what_the_protocol_cannot_say_is_refused_before_it_is_sent(
    quota_admin: KafkaClientQuotaAdmin,
):
    of = entity(user="\ud800")
    with pytest.raises(InvalidRequestError, match="cannot say"):
        await quota_admin.alter_client_quotas(
            [setting(of, producer_byte_rate=1)], validate_only=False
        )
    await quota_admin.cluster_id()


@pytest.mark.parametrize(
    ("components", "kafka_error", "words"),
    [
        ([of_entity("User", "u")], "UNSUPPORTED_VERSION", "Unsupported entity type User"),
        ([of_entity("user", "u")] * 2, "INVALID_REQUEST", "cannot appear more than once"),
    ],
)
async def test_a_filter_that_the_broker_refuses_is_refused_in_its_words(
    quota_admin: KafkaClientQuotaAdmin,
    components: list[ClientQuotaFilterComponent],
    kafka_error: str,
    words: str,
):
    with pytest.raises(InvalidRequestError, match=words) as caught:
        await quota_admin.describe_client_quotas(ClientQuotaFilter(tuple(components)))
    assert caught.value.kafka_error == kafka_error


async def test_fifty_describes_at_once_are_all_answered(quota_admin: KafkaClientQuotaAdmin):
    answers = await asyncio.gather(
        *(quota_admin.describe_client_quotas(ALL_ENTITIES) for _ in range(50))
    )
    assert len({answer.cluster_id for answer in answers}) == 1


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
def test_the_faster_event_loop_does_as_well(broker: LocalKafka, tls: LocalTls, protocol: str):
    async def round_trip() -> dict[str, float]:
        of = entity(user=unique())
        async with (
            admin_of(settings_for(broker, tls, protocol, "SCRAM-SHA-256")) as admin,
            asyncio.timeout(30),
        ):
            change = [setting(of, producer_byte_rate=3)]
            await admin.alter_client_quotas(change, validate_only=False)
            while not (values := await values_of(admin, of)):
                await asyncio.sleep(0.01)
        return values

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(round_trip()) == {"producer_byte_rate": 3.0}


async def test_closing_leaves_no_connection_and_no_thread(kafka_settings: KafkaSettings):
    threads = set(threading.enumerate())
    async with admin_of(kafka_settings) as admin:
        await admin.describe_client_quotas(ALL_ENTITIES)
    assert set(threading.enumerate()) - threads <= {
        thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")
    }
    with pytest.raises(NotSentError, match="shutting down"):
        await admin.describe_client_quotas(ALL_ENTITIES)
