"""Settings that stop the start: all faults at once, in production also what is unsafe."""

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.http.authentication.proxies import is_this_machine
from app.server import Listener
from app.settings import Settings, SettingsError
from app.startup_checks import find_unsafe, is_local_postgres, load_settings, warn
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


SAFE: dict[str, dict[str, str]] = {
    "as it comes": {},
    "IPv6": {"QUOTAS_HOST": "::1", "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "[::1]:9092"},
    "names": {"QUOTAS_HOST": "localhost", "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"},
    "a password on loopback": {
        "QUOTAS_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "QUOTAS_KAFKA_SASL_MECHANISM": "PLAIN",
        "QUOTAS_KAFKA_SASL_USERNAME": "quotas",
        "QUOTAS_KAFKA_SASL_PASSWORD": "secret",
    },
    "Postgres on loopback": {"QUOTAS_DATABASE_URL": "postgresql://quotas@127.0.0.1/quotas"},
    "Postgres by a socket": {"QUOTAS_DATABASE_URL": "postgresql://quotas@/quotas"},
    "the same owner": {
        "QUOTAS_MIGRATION_DATABASE_URL": "postgresql://quotas@/quotas?host=/run/postgresql"
    },
    "TLS to all": {
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka.example.org:9093",
        "QUOTAS_KAFKA_SECURITY_PROTOCOL": "SSL",
        "QUOTAS_DATABASE_URL": "postgresql://quotas@db.example.org/quotas?sslmode=verify-full",
    },
    "the machine's authorities": {
        "QUOTAS_DATABASE_URL": "postgresql://quotas@db.example.org/quotas?sslrootcert=system"
    },
    "switches": {
        "QUOTAS_HOST": "0.0.0.0",
        "QUOTAS_TLS_TERMINATED_UPSTREAM": "true",
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA": "true",
        "QUOTAS_DATABASE_URL": "postgresql://quotas@postgres/quotas",
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES": "true",
    },
}

UNSAFE: dict[str, tuple[dict[str, str], str]] = {
    "everybody on a cluster without an authorizer": (
        {"QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER": "true"},
        "everybody with a credential may alter every quota",
    ),
    "a listener for everybody": ({"QUOTAS_HOST": "0.0.0.0"}, "QUOTAS_TLS_TERMINATED_UPSTREAM"),
    "a listener for everybody in IPv6": ({"QUOTAS_HOST": "::"}, "QUOTAS_TLS_TERMINATED_UPSTREAM"),
    "a listener with a name": (
        {"QUOTAS_HOST": "quotas.example.org"},
        "QUOTAS_TLS_TERMINATED_UPSTREAM",
    ),
    "a broker elsewhere": (
        {"QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "10.0.0.5:9092"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA",
    ),
    "one broker of two elsewhere": (
        {"QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092,kafka-2:9092"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA",
    ),
    "a password to a broker elsewhere": (
        {**SAFE["a password on loopback"], "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA",
    ),
    "Postgres elsewhere": (
        {"QUOTAS_DATABASE_URL": "postgresql://quotas:secret@db.example.org/quotas"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES",
    ),
    "Postgres elsewhere, encrypted to anybody": (
        {"QUOTAS_DATABASE_URL": "postgresql://quotas@db.example.org/quotas?sslmode=require"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES",
    ),
    "Postgres elsewhere, of an unknown name": (
        {"QUOTAS_DATABASE_URL": "postgresql://quotas@10.0.0.7/quotas?sslmode=verify-ca"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES",
    ),
    "a name here with an address elsewhere": (
        {"QUOTAS_DATABASE_URL": "postgresql://quotas@localhost/quotas?hostaddr=10.0.0.7"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES",
    ),
    "one Postgres of two elsewhere": (
        {"QUOTAS_DATABASE_URL": "postgresql://quotas@localhost,db-2/quotas"},
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES",
    ),
}


@pytest.mark.parametrize("name", SAFE)
def test_what_is_safe_starts(tmp_path: Path, name: str):
    tokens = {"QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path))}
    read = load_settings({**CHECKS, **tokens, **SAFE[name]})
    assert find_unsafe(read) == []


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_unsafe_is_refused_in_production_and_warned_of_in_development(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
):
    changes, switch = UNSAFE[name]
    changes = {**changes, "QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path))}
    with pytest.raises(SettingsError, match=switch) as caught:
        load_settings({**CHECKS, **changes})
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("QUOTAS_")
    with caplog.at_level(logging.WARNING):
        warn(load_settings({**CHECKS, **changes, "QUOTAS_MODE": "development"}))
    assert f"unsafe: {caught.value}" in caplog.text


def test_all_that_is_unsafe_is_reported_at_once(tmp_path: Path):
    changes = {
        "QUOTAS_HOST": "0.0.0.0",
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
        "QUOTAS_DATABASE_URL": "postgresql://quotas@postgres/quotas",
        "QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path)),
    }
    with pytest.raises(SettingsError) as caught:
        load_settings({**CHECKS, **changes})
    assert len(str(caught.value).splitlines()) == 3


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
