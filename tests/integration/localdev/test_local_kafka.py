import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from app.localdev.descendants import wait_until_ended
from app.localdev.kafka import LocalKafka
from app.localdev.kafka_admin import cluster_id_of, silent_admin
from app.localdev.kafka_jvm import run_tool
from app.localdev.load import LoadClient, prepare_load, run_load

DEADLINE_S = 30

AN_ACL = AclBinding(
    ResourceType.BROKER,
    "kafka-cluster",
    ResourcePatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.DESCRIBE_CONFIGS,
    AclPermissionType.ALLOW,
)
ANY_ACL = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

PARENT = """
import pathlib, sys, time
from app.localdev.kafka import LocalKafka
kafka = LocalKafka(pathlib.Path(sys.argv[1]))
kafka.start()
print(kafka.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(
        tmp_path_factory.mktemp("kafka"),
        plain_users={"admin": "admin-secret", "alice": 'al"i\\ce'},
        scram_users={"carol": "carol-secret"},
        request_log=True,
    ) as kafka:
        yield kafka


def sasl_admin(kafka: LocalKafka, mechanism: str, name: str, password: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": kafka.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def eventually(claim: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if claim():
            return True
    return False


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
    client = sasl_admin(kafka, mechanism, name, password)
    assert client.list_topics(timeout=DEADLINE_S).cluster_id == kafka.cluster_id


def test_acls_are_enforced_for_ordinary_users_and_not_for_super_users(kafka: LocalKafka):
    alice = sasl_admin(kafka, "PLAIN", "alice", 'al"i\\ce')
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        alice.create_acls([AN_ACL], request_timeout=DEADLINE_S)[AN_ACL].result()
    admin = sasl_admin(kafka, "PLAIN", "admin", "admin-secret")
    admin.create_acls([AN_ACL], request_timeout=DEADLINE_S)[AN_ACL].result()


def test_quota_requests_are_logged_and_others_are_not(kafka: LocalKafka):
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--entity-type", "users"]
    done = run_tool("kafka.admin.ConfigCommand", *arguments, "--describe")
    assert done.returncode == 0, done.stdout
    assert eventually(lambda: "DESCRIBE_CLIENT_QUOTAS" in kafka.request_log_path.read_text())
    assert "METADATA" not in kafka.request_log_path.read_text()


def test_quota_metrics_are_served_where_the_agent_is_asked_for(tmp_path: Path):
    users = {"alice": "alice-secret"}
    client = LoadClient("alice", "etl, hourly", 100_000)
    done = threading.Event()
    with LocalKafka(tmp_path, plain_users=users, metrics=True) as kafka:
        prepare_load(kafka.bootstrap_servers)
        entity = ["--entity-type", "users", "--entity-name", "alice"]
        rule = ["--entity-type", "clients", "--entity-default"]
        arguments = [*entity, *rule, "--alter", "--add-config", "producer_byte_rate=1000000"]
        server = ["--bootstrap-server", kafka.bootstrap_servers]
        assert run_tool("kafka.admin.ConfigCommand", *server, *arguments).returncode == 0
        load = threading.Thread(
            target=run_load, args=(kafka.sasl_bootstrap_servers, [client], done)
        )
        load.start()
        try:
            labels = r'{client_id="\"etl, hourly\"",resource="Produce",user="alice"'
            assert eventually(
                lambda: "kafka_server_quota_byte_rate" + labels in _text(kafka.metrics_url)
            )
        finally:
            done.set()
            load.join()


def _text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def test_the_tools_of_kafka_tools_run(kafka: LocalKafka):
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--list"]
    done = run_tool("org.apache.kafka.tools.AclCommand", *arguments, tools=True)
    assert done.returncode == 0, done.stdout


def test_a_paused_broker_does_not_answer_until_it_is_resumed(kafka: LocalKafka):
    client = silent_admin(kafka.bootstrap_servers)
    assert eventually(lambda: cluster_id_of(client) == kafka.cluster_id)
    kafka.pause()
    try:
        assert cluster_id_of(client, timeout_s=0.5) is None
    finally:
        kafka.resume()
    assert eventually(lambda: cluster_id_of(client) == kafka.cluster_id)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_restart_keeps_cluster_address_and_acls_and_stopping_leaves_no_process(
    tmp_path: Path, ending: str
):
    with LocalKafka(tmp_path) as first:
        before = (first.cluster_id, first.bootstrap_servers, first.controller_port)
        client = silent_admin(first.bootstrap_servers)
        client.create_acls([AN_ACL], request_timeout=DEADLINE_S)[AN_ACL].result()
        pid = first.pid
        getattr(first, ending)()
        wait_until_ended([pid], DEADLINE_S)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with LocalKafka(tmp_path) as second:
        assert (second.cluster_id, second.bootstrap_servers, second.controller_port) == before
        client = silent_admin(second.bootstrap_servers)
        assert client.describe_acls(ANY_ACL, request_timeout=DEADLINE_S).result() == [AN_ACL]


def test_a_broker_dies_with_a_parent_that_is_killed(tmp_path: Path):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    wait_until_ended([pid], DEADLINE_S)
    client = silent_admin(LocalKafka(tmp_path).bootstrap_servers)
    assert cluster_id_of(client) is None
