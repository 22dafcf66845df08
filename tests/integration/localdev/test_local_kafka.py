"""A broker of this machine, and the jars that it is made of."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from jgo.config import GlobalSettings

from app.localdev.jars import class_path
from app.localdev.kafka import LocalKafka, LocalTls, run_tool
from app.localdev.kafka_admin import cluster_id_of, silent_admin
from app.localdev.traffic import TrafficClient, prepare_traffic, run_traffic
from tests.testkit.event_loops import Silent, served
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


class Repository(Silent, SimpleHTTPRequestHandler):
    """The jars of this machine."""


@pytest.fixture
def mirror() -> Iterator[str]:
    class_path(tools=True)
    with served(partial(Repository, directory=str(GlobalSettings.load().repo_cache))) as address:
        yield address


def test_two_processes_that_fetch_at_once_both_get_every_jar(mirror: str, tmp_path: Path):
    configuration = tmp_path / "jgo.conf"
    configuration.write_text(f"[repositories]\nmirror = {mirror}\n")
    environ = {
        **os.environ,
        "M2_REPO": str(tmp_path / "repository"),
        "JGO_CONFIG_FILE": str(configuration),
    }
    program = "from app.localdev.jars import class_path; print(len(class_path(tools=True)))"
    command = [sys.executable, "-c", program]
    both = [
        subprocess.Popen(
            command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [out for out, _ in answers] == ["47\n", "47\n"]
    assert sorted("Fetched them" in progress for _, progress in answers) == [False, True]


def test_a_warm_repository_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class_path()
    configuration = tmp_path / "jgo.conf"
    configuration.write_text("[repositories]\nmirror = http://127.0.0.1:9\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))
    assert len(class_path()) == 46
