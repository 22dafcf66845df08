"""Settings that stop the start: all faults at once, in production also what is unsafe."""

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.dependency_checks import is_local_postgres
from app.http.authentication.proxies import is_this_machine
from app.server import Listener
from app.settings import Settings, SettingsError
from app.startup_checks import find_unsafe, load_settings, warn
from tests.testkit.service import write_tokens

CHECKS = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@/quotas?host=/run/postgresql",
}
"""What the checks of others set; with these the service starts in production."""


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)


def settings(changes: Mapping[str, str]) -> Settings:
    return Settings.from_env({**CHECKS, **changes})


PASSWORD = """
kafka_security_protocol=SASL_PLAINTEXT kafka_sasl_mechanism=PLAIN
kafka_sasl_username=quotas kafka_sasl_password=secret
"""
TLS = "kafka_bootstrap_servers=kafka.example.org:9093 kafka_security_protocol=SSL"
SWITCHES = """
host=0.0.0.0 tls_terminated_upstream=true
kafka_bootstrap_servers=kafka:9092 insecure_allow_plaintext_kafka=true
database_url=postgresql://quotas@postgres/quotas insecure_allow_plaintext_postgres=true
"""

SAFE = [
    "",
    "host=::1 kafka_bootstrap_servers=[::1]:9092",
    "host=localhost kafka_bootstrap_servers=localhost:9092",
    PASSWORD,
    "database_url=postgresql://quotas@127.0.0.1/quotas",
    "database_url=postgresql://quotas@/quotas",
    "migration_database_url=postgresql://quotas@/quotas?host=/run/postgresql",
    f"{TLS} database_url=postgresql://quotas@db.example.org/quotas?sslmode=verify-full",
    "database_url=postgresql://quotas@db.example.org/quotas?sslrootcert=system",
    SWITCHES,
]

UNSAFE = {
    "everybody with a credential may alter": ["insecure_allow_without_authorizer=true"],
    "QUOTAS_TLS_TERMINATED_UPSTREAM": ["host=0.0.0.0", "host=::", "host=quotas.example.org"],
    "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA": [
        "kafka_bootstrap_servers=10.0.0.5:9092",
        "kafka_bootstrap_servers=127.0.0.1:9092,kafka-2:9092",
        f"{PASSWORD} kafka_bootstrap_servers=kafka:9092",
    ],
    "QUOTAS_EVENTS_SECURITY_PROTOCOL: PLAINTEXT to kafka is": [
        "events_topic=events events_bootstrap_servers=kafka:9092",
    ],
    "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES": [
        "database_url=postgresql://quotas:secret@db.example.org/quotas",
        "database_url=postgresql://quotas@db.example.org/quotas?sslmode=require",
        "database_url=postgresql://quotas@10.0.0.7/quotas?sslmode=verify-ca",
        "database_url=postgresql://quotas@localhost/quotas?hostaddr=10.0.0.7",
        "database_url=postgresql://quotas@localhost,db-2/quotas",
    ],
}
"""By what the refusal names."""


def variables(words: str) -> dict[str, str]:
    pairs = (word.split("=", 1) for word in words.split())
    return {f"QUOTAS_{name.upper()}": value for name, value in pairs}


@pytest.mark.parametrize("words", SAFE)
def test_what_is_safe_starts(tmp_path: Path, words: str):
    tokens = {"QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path))}
    read = load_settings({**CHECKS, **tokens, **variables(words)})
    assert find_unsafe(read) == []


@pytest.mark.parametrize(
    ("switch", "words"), [(switch, words) for switch, each in UNSAFE.items() for words in each]
)
def test_what_is_unsafe_is_refused_in_production_and_warned_of_in_development(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words: str, switch: str
):
    changes = {**variables(words), "QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path))}
    with pytest.raises(SettingsError, match=switch) as caught:
        load_settings({**CHECKS, **changes})
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("QUOTAS_")
    with caplog.at_level(logging.WARNING):
        warn(load_settings({**CHECKS, **changes, "QUOTAS_MODE": "development"}))
    assert f"unsafe: {caught.value}" in caplog.text


def test_the_environment_of_libpq_counts(monkeypatch: pytest.MonkeyPatch):
    changes = {"QUOTAS_DATABASE_URL": "postgresql://quotas@/quotas"}
    assert is_local_postgres(settings(changes))
    monkeypatch.setenv("PGHOST", "db.example.org")
    assert not is_local_postgres(settings(changes))
    assert len(find_unsafe(settings(changes))) == 1
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert find_unsafe(settings(changes)) == []


def test_what_is_this_machine(subtests: pytest.Subtests):
    for host, here in [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ]:
        with subtests.test(host=host, here=here):
            assert is_this_machine(host) is here


def test_what_works_and_had_better_be_different_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with caplog.at_level(logging.WARNING):
        warn(settings({"QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path))}))
    assert "risky: the service runs as root" in caplog.text
    assert "risky: QUOTAS_TOKENS_FILE" in caplog.text


def test_bound_sockets_do_not_listen_yet_and_are_on_the_port_that_was_asked_for():
    (free,) = Listener("QUOTAS_PORT", "127.0.0.1", 0).bind()
    port = free.getsockname()[1]
    free.close()
    (bound,) = Listener("QUOTAS_PORT", "127.0.0.1", port).bind()
    with bound, socket.socket() as caller:
        assert bound.getsockname() == ("127.0.0.1", port)
        assert caller.connect_ex(("127.0.0.1", port)) != 0
        assert not bound.getblocking()


def test_faults_of_all_groups_are_reported_at_once():
    changes = {
        "QUOTAS_PROT": "8080",
        "QUOTAS_PORT": "80000",
        "QUOTAS_SUPER_USERS": "admin",
        "QUOTAS_FORWARDED_HEADER": "forwarded",
        "QUOTAS_TOKENS_FILE": "/no/such/file",
        "QUOTAS_POLICY_FILE": "/no/such/file",
        "QUOTAS_TEST_FAILPOINT": "after_intent:kill",
        "QUOTAS_READS_PER_S": "0",
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
    }
    with pytest.raises(SettingsError) as caught:
        load_settings({**CHECKS, **changes})
    beginnings = [
        "QUOTAS_PORT: input should be less than or equal to 65535.",
        "QUOTAS_PROT is not a setting of this service; check its spelling. Is it QUOTAS_PORT?",
        "QUOTAS_SUPER_USERS: expected a principal such as User:alice, got 'admin'.",
        "QUOTAS_TRUSTED_PROXIES is needed with QUOTAS_FORWARDED_HEADER and not set.",
        "QUOTAS_TEST_… is for tests: it needs QUOTAS_MODE=development.",
        "QUOTAS_TOKENS_FILE: The tokens file /no/such/file cannot be used: No such file",
        "QUOTAS_POLICY_FILE: /no/such/file cannot be read: No such file",
        "QUOTAS_KAFKA_SECURITY_PROTOCOL: PLAINTEXT to kafka is not encrypted.",
        "QUOTAS_READS_PER_S: 0 is no limit",
    ]
    lines = str(caught.value).splitlines()
    assert len(lines) == len(beginnings), lines
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(beginning)


def test_nothing_is_concluded_from_a_setting_that_could_not_be_read(tmp_path: Path):
    changes = {
        "QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path)),
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
        "QUOTAS_KAFKA_SECURITY_PROTOCOL": "TLS",
        "QUOTAS_MODE": "testing",
    }
    with pytest.raises(SettingsError) as caught:
        load_settings({**CHECKS, **changes})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "QUOTAS_KAFKA_SECURITY_PROTOCOL",
        "QUOTAS_MODE",
    ]


def test_a_taken_port_is_reported_with_the_other_faults():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as caught:
            load_settings({**CHECKS, "QUOTAS_PORT": str(port)}, listens=True)
    assert [
        line.partition(":")[0].partition(",")[0] for line in str(caught.value).splitlines()
    ] == ["QUOTAS_TOKENS_FILE", "QUOTAS_PORT"]
