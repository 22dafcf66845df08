"""A broker of this machine, and the jars that it is made of."""

import os
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from jgo.config import GlobalSettings

from app.localdev.jars import class_path
from app.localdev.kafka import LocalKafka, run_tool
from tests.integration.localdev.conftest import PASSWORD
from tests.testkit.event_loops import Silent, served
from tests.testkit.patience import wait_until
from tests.testkit.service import acl

DEADLINE_S = 30
AN_ACL = acl("alice", "DESCRIBE_CONFIGS")


def create_acl(kafka: LocalKafka, name: str, password: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}
    servers = {"bootstrap.servers": kafka.sasl_bootstrap_servers, "log_level": 0}
    admin = AdminClient({**servers, "security.protocol": "SASL_PLAINTEXT", **login})
    admin.create_acls([AN_ACL], request_timeout=DEADLINE_S)[AN_ACL].result()


def test_acls_are_enforced_for_ordinary_users_and_not_for_super_users(kafka: LocalKafka):
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        create_acl(kafka, "alice", PASSWORD)
    create_acl(kafka, "admin", "admin-secret")


def test_quota_requests_are_logged_and_others_are_not(kafka: LocalKafka):
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--entity-type", "users"]
    done = run_tool("kafka.admin.ConfigCommand", *arguments, "--describe")
    assert done.returncode == 0, done.stdout
    wait_until(lambda: "DESCRIBE_CLIENT_QUOTAS" in kafka.request_log_path.read_text())
    assert "METADATA" not in kafka.request_log_path.read_text()


class Repository(Silent, SimpleHTTPRequestHandler):
    """The jars of this machine."""


def test_two_processes_that_fetch_at_once_both_get_every_jar(tmp_path: Path):
    class_path(tools=True)
    configuration = tmp_path / "jgo.conf"
    environ = {
        **os.environ,
        "M2_REPO": str(tmp_path / "repository"),
        "JGO_CONFIG_FILE": str(configuration),
    }
    program = "from app.localdev.jars import class_path; print(len(class_path(tools=True)))"
    with served(partial(Repository, directory=str(GlobalSettings.load().repo_cache))) as mirror:
        configuration.write_text(f"[repositories]\nmirror = {mirror}\n")
        both = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                env=environ,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
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
