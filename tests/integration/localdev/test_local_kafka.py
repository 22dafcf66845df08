import threading

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from app.localdev.kafka import LocalKafka, LocalTls, run_tool
from app.localdev.kafka_admin import cluster_id_of, silent_admin
from app.localdev.traffic import TrafficClient, prepare_traffic, run_traffic
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import acl

DEADLINE_S = 30

AN_ACL = acl("alice", "DESCRIBE_CONFIGS")


def sasl_admin(servers: str, mechanism: str, name: str, password: str, **more: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
    )


def test_the_cluster_describes_itself_with_one_node(kafka: LocalKafka):
    client = silent_admin(kafka.bootstrap_servers)
    answer = client.describe_cluster(request_timeout=DEADLINE_S).result()
    assert answer.cluster_id == kafka.cluster_id
    assert [f"{node.host}:{node.port}" for node in answer.nodes] == [kafka.bootstrap_servers]


@pytest.mark.parametrize(
    ("mechanism", "name", "password"),
    [
        ("PLAIN", "alice", 'al"i\\ce'),
        ("SCRAM-SHA-256", "carol", "carol-secret"),
        ("SCRAM-SHA-512", "carol", "carol-secret"),
    ],
)
def test_each_mechanism_lets_its_users_in(
    kafka: LocalKafka, mechanism: str, name: str, password: str
):
    client = sasl_admin(kafka.sasl_bootstrap_servers, mechanism, name, password)
    assert client.list_topics(timeout=DEADLINE_S).cluster_id == kafka.cluster_id


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_both_tls_listeners_answer(kafka: LocalKafka, tls: LocalTls, protocol: str):
    encrypted = {"security_protocol": protocol, "ssl_ca_location": str(tls.truststore_file)}
    client = sasl_admin(kafka.address(protocol), "PLAIN", "bob", "bob-secret", **encrypted)
    assert client.list_topics(timeout=DEADLINE_S).cluster_id == kafka.cluster_id


def test_acls_are_enforced_for_ordinary_users_and_not_for_super_users(kafka: LocalKafka):
    alice = sasl_admin(kafka.sasl_bootstrap_servers, "PLAIN", "alice", 'al"i\\ce')
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        alice.create_acls([AN_ACL], request_timeout=DEADLINE_S)[AN_ACL].result()
    admin = sasl_admin(kafka.sasl_bootstrap_servers, "PLAIN", "admin", "admin-secret")
    admin.create_acls([AN_ACL], request_timeout=DEADLINE_S)[AN_ACL].result()


def test_quota_requests_are_logged_and_others_are_not(kafka: LocalKafka):
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--entity-type", "users"]
    done = run_tool("kafka.admin.ConfigCommand", *arguments, "--describe")
    assert done.returncode == 0, done.stdout
    wait_until(lambda: "DESCRIBE_CLIENT_QUOTAS" in kafka.request_log_path.read_text())
    assert "METADATA" not in kafka.request_log_path.read_text()


def test_quota_metrics_are_served_where_the_agent_is_asked_for(kafka: LocalKafka):
    client = TrafficClient("bob", "etl, hourly", 100_000)
    done = threading.Event()
    prepare_traffic(kafka.bootstrap_servers)
    with RawQuotas(kafka.bootstrap_servers) as raw:
        raw.store({"user": "bob", "client-id": None}, {"producer_byte_rate": 1_000_000})
    load = threading.Thread(target=run_traffic, args=(kafka.sasl_bootstrap_servers, [client], done))
    load.start()
    try:
        labels = r'{client_id="\"etl, hourly\"",resource="Produce",user="bob"'
        wait_until(lambda: "kafka_server_quota_byte_rate" + labels in metrics_of(kafka))
    finally:
        done.set()
        load.join()


def metrics_of(kafka: LocalKafka) -> str:
    return httpx.get(kafka.metrics_url, timeout=DEADLINE_S).text


def test_the_tools_of_kafka_tools_run(kafka: LocalKafka):
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--list"]
    done = run_tool("org.apache.kafka.tools.AclCommand", *arguments, tools=True)
    assert done.returncode == 0, done.stdout


def test_a_paused_broker_does_not_answer_until_it_is_resumed(kafka: LocalKafka):
    client = silent_admin(kafka.bootstrap_servers)
    wait_until(lambda: cluster_id_of(client) == kafka.cluster_id)
    kafka.pause()
    try:
        assert cluster_id_of(client, timeout_s=0.5) is None
    finally:
        kafka.resume()
    wait_until(lambda: cluster_id_of(client) == kafka.cluster_id)
