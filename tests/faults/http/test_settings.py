"""Settings that cannot be used stop the start: exit code 2, a sentence for each, no secret."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.settings import SettingsError
from app.startup_checks import load_settings
from tests.testkit.service import STARTS_WITHIN_S, environment, write_tokens

SECRET = "s3cret-canary"

GOOD = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@127.0.0.1:1/quotas",
    "QUOTAS_PORT": "0",
}

CASES: dict[str, tuple[Mapping[str, str], list[str]]] = {
    "what pydantic reads": (
        {
            "QUOTAS_DATABASE_URL": "",
            "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "",
            "QUOTAS_PORTT": "8080",
            "QUOTAS_KAFKA_PASSWORD": SECRET,
            "QUOTAS_PORT": "eighty",
            "QUOTAS_MODE": "test",
            "QUOTAS_LOG_LEVEL": "LOUD",
            "QUOTAS_SHUTDOWN_GRACE_S": "-1",
            "QUOTAS_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "perhaps",
        },
        [
            "QUOTAS_ALLOW_EVERYONE_IF_NO_ACL_FOUND: input should be ",
            "QUOTAS_DATABASE_URL is needed and not set.",
            "QUOTAS_KAFKA_BOOTSTRAP_SERVERS is needed and not set.",
            "QUOTAS_KAFKA_PASSWORD is not a setting of this service; check its spelling.",
            "QUOTAS_LOG_LEVEL: input should be ",
            "QUOTAS_MODE: input should be ",
            "QUOTAS_PORT: input should be ",
            "QUOTAS_PORTT is not a setting of this service; check its spelling.",
            "QUOTAS_SHUTDOWN_GRACE_S: input should be ",
        ],
    ),
    "what only its use shows": (
        {
            "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka",
            "QUOTAS_DATABASE_URL": f"mysql://quotas:{SECRET}@127.0.0.1/quotas",
            "QUOTAS_SUPER_USERS": "User:root;admin",
            "QUOTAS_TOKENS_FILE": "/no/such/file",
        },
        [
            "QUOTAS_DATABASE_URL: a database URL begins with postgresql://",
            "QUOTAS_KAFKA_BOOTSTRAP_SERVERS: The bootstrap server 'kafka' is not host:port.",
            "QUOTAS_SUPER_USERS: expected a principal such as User:alice, got 'admin'",
            "QUOTAS_TOKENS_FILE: The tokens file /no/such/file cannot be used: No such file",
        ],
    ),
    "an address that nobody has": (
        {"QUOTAS_HOST": "192.0.2.300", "QUOTAS_TLS_TERMINATED_UPSTREAM": "true"},
        ["QUOTAS_HOST: '192.0.2.300' cannot be listened on: "],
    ),
    "no tokens": (
        {"QUOTAS_TOKENS_FILE": ""},
        [
            (
                "QUOTAS_TOKENS_FILE, QUOTAS_OIDC_ISSUER or another credential of "
                "QUOTAS_AUTHENTICATORS is needed and none is set: nobody can call."
            )
        ],
    ),
    "an identity provider that cannot be used": (
        {
            "QUOTAS_OIDC_ISSUER": "http://login.example.org",
            "QUOTAS_OIDC_JWKS_URL": "file:///keys",
            "QUOTAS_OIDC_ALGORITHMS": "RS256,HS256",
            "QUOTAS_OIDC_CA_FILE": "/no/such/file",
        },
        [
            (
                "QUOTAS_OIDC_ALGORITHMS: it takes some of ES256, ES384, ES512, EdDSA, PS256, "
                "PS384, PS512, RS256, RS384, RS512."
            ),
            (
                "QUOTAS_OIDC_ISSUER: http://login.example.org must begin with https:// (http:// on "
                "this machine only)."
            ),
            (
                "QUOTAS_OIDC_JWKS_URL: file:///keys must begin with https:// (http:// on this "
                "machine only)."
            ),
            "QUOTAS_OIDC_AUDIENCE is needed with QUOTAS_OIDC_ISSUER and not set.",
            "QUOTAS_OIDC_CA_FILE: it cannot be used: No such file or directory.",
        ],
    ),
    "a login without a password": (
        {
            "QUOTAS_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "QUOTAS_KAFKA_SASL_MECHANISM": "PLAIN",
            "QUOTAS_KAFKA_SASL_USERNAME": "service",
        },
        ["QUOTAS_KAFKA_SASL_PASSWORD is needed with QUOTAS_KAFKA_SECURITY_PROTOCOL=SASL_SSL and "],
    ),
    "an unknown authenticator": (
        {"QUOTAS_KAFKA_SASL_MECHANISM": "GSSAPI"},
        ["QUOTAS_KAFKA_SASL_MECHANISM: input should be 'PLAIN', 'SCRAM-SHA-256' or "],
    ),
    "an unknown protocol": (
        {"QUOTAS_KAFKA_SECURITY_PROTOCOL": "TLS"},
        ["QUOTAS_KAFKA_SECURITY_PROTOCOL: input should be 'PLAINTEXT', 'SSL', "],
    ),
    "an authority that is not there": (
        {"QUOTAS_KAFKA_SECURITY_PROTOCOL": "SSL", "QUOTAS_KAFKA_SSL_CA_FILE": "/no/such/file"},
        ["QUOTAS_KAFKA_SSL_…: it cannot be used: No such file or directory."],
    ),
    "an auditor without a type": (
        {"QUOTAS_AUDITORS": "auditor"},
        ["QUOTAS_AUDITORS: expected a principal such as User:alice, got 'auditor'"],
    ),
    "no limit in production": (
        {"QUOTAS_MODE": "production", "QUOTAS_READS_PER_S": "0"},
        ["QUOTAS_READS_PER_S: 0 is no limit, so one caller may use up this process."],
    ),
}


def unusable(folder: Path, name: str) -> dict[str, str]:
    """Return the environment of a case."""
    return {**GOOD, "QUOTAS_TOKENS_FILE": str(write_tokens(folder)), **CASES[name][0]}


def assert_reported(text: str, name: str) -> None:
    """Check that there is a sentence for each fault, and no secret."""
    sentences, lines = CASES[name][1], text.splitlines()
    assert len(lines) == len(sentences), text
    for line, beginning in zip(lines, sentences, strict=True):
        assert line.startswith(beginning)
    assert SECRET not in text


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_used_is_reported_in_a_sentence_each(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(unusable(tmp_path, name), listens=True)
    assert_reported(str(caught.value), name)


def test_the_command_itself_refuses_such_a_start(tmp_path: Path) -> None:
    name = "what only its use shows"
    ended = subprocess.run(
        [sys.executable, "-m", "app.main", "serve"],
        env=environment(unusable(tmp_path, name)),
        capture_output=True,
        text=True,
        timeout=STARTS_WITHIN_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert_reported(ended.stderr, name)
