"""What each setting takes, and what stops the start: a sentence for each fault, no secret."""

import subprocess
import sys
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path

import pytest

from app.http.authentication.proxies import ForwardedHeader
from app.service.runtime.tasks import Failpoints
from app.settings import SECRETS, Settings, SettingsError, UnreadSettingError
from app.startup_checks import load_settings
from tests.testkit.service import STARTS_WITHIN_S, environment, write_tokens

NEEDED = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@/quotas?host=/run/postgresql",
}


def settings(**changes: str) -> Settings:
    return Settings.from_env(
        {**NEEDED, **{f"QUOTAS_{name}": value for name, value in changes.items()}}
    )


def test_a_setting_has_the_type_that_is_used():
    read = settings(
        SUPER_USERS="User:a; User:CN=b,O=c",
        TRUSTED_PROXIES=" 10.0.0.5, 2001:db8::/32,",
        FORWARDED_HEADER="forwarded",
        OIDC_ALGORITHMS="RS256, ES256",
        TEST_FAILPOINT="after_intent:stop",
        CORS_ORIGINS="https://portal.example; http://[::1]:3000",
        WORKERS="",
    )
    assert read.super_users == {"User:a", "User:CN=b,O=c"}
    assert read.trusted_proxies == (ip_network("10.0.0.5"), ip_network("2001:db8::/32"))
    assert read.forwarded_header is ForwardedHeader.FORWARDED
    assert read.oidc_algorithms == ("RS256", "ES256")
    assert read.test_failpoint == Failpoints("after_intent", "stop")
    assert read.cors_origins == ("https://portal.example", "http://[::1]:3000")
    assert read.workers == 1


def test_an_origin_is_written_as_browsers_send_it(subtests: pytest.Subtests):
    for origin in [
        "*",
        "https://*.example",
        "portal.example",
        "https://portal.example/",
        "null",
        "file:///",
    ]:
        with (
            subtests.test(origin=origin),
            pytest.raises(SettingsError, match="QUOTAS_CORS_ORIGINS: it takes origins such as"),
        ):
            settings(CORS_ORIGINS=origin)


def test_what_could_not_be_read_has_no_value():
    read, (fault,) = Settings.read({**NEEDED, "QUOTAS_PORT": "eighty"})
    assert fault.startswith("QUOTAS_PORT: ")
    assert read.host == "127.0.0.1"
    with pytest.raises(UnreadSettingError):
        _ = read.port


def test_a_missing_setting_is_described_and_a_misspelt_name_has_a_suggestion():
    with pytest.raises(SettingsError) as refused:
        Settings.from_env({"QUOTAS_PROT": "1", "QUOTAS_ELEPHANT": "secret"})
    assert str(refused.value).splitlines() == [
        ("QUOTAS_DATABASE_URL is needed and not set. It is: postgresql://…, the service's role."),
        "QUOTAS_ELEPHANT is not a setting of this service; check its spelling.",
        (
            "QUOTAS_KAFKA_BOOTSTRAP_SERVERS is needed and not set. "
            "It is: host:port,… of the brokers."
        ),
        "QUOTAS_PROT is not a setting of this service; check its spelling. Is it QUOTAS_PORT?",
    ]


def test_there_are_one_to_64_workers(subtests: pytest.Subtests):
    for number in ["0", "-1", "65", "many"]:
        refusal = pytest.raises(SettingsError, match="QUOTAS_WORKERS")
        with subtests.test(number=number), refusal:
            settings(WORKERS=number)


def test_each_secret_may_be_in_a_file(tmp_path: Path):
    files = {}
    for name in SECRETS:
        path = tmp_path / name
        path.write_text(f"postgresql://{name}\n", encoding="utf-8")
        files[f"QUOTAS_{name.upper()}_FILE"] = str(path)
    del (needed := dict(NEEDED))["QUOTAS_DATABASE_URL"]
    read = Settings.from_env({**needed, **files})
    assert {name: getattr(read, name).get_secret_value() for name in SECRETS} == {
        name: f"postgresql://{name}" for name in SECRETS
    }
    assert read.kafka.sasl_password == "postgresql://kafka_sasl_password"
    assert read.kafka.ssl_key_password == "postgresql://kafka_ssl_key_password"
    assert "postgresql://" not in repr(read)


def test_a_secret_in_a_file_that_cannot_be_used_is_a_fault_and_is_not_repeated(tmp_path: Path):
    (tmp_path / "canary").write_text("canary\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"canary\xff")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    wrong = {
        "QUOTAS_DATABASE_URL_FILE": "canary",
        "QUOTAS_MIGRATION_DATABASE_URL_FILE": "canary",
        "QUOTAS_KAFKA_SASL_PASSWORD_FILE": "none",
        "QUOTAS_KAFKA_SSL_KEY_PASSWORD_FILE": "binary",
        "QUOTAS_TLS_KEY_PASSWORD_FILE": "empty",
    }
    files = {name: str(tmp_path / file) for name, file in wrong.items()}
    with pytest.raises(SettingsError) as refused:
        Settings.from_env({**NEEDED, **files, "QUOTAS_KAFKA_SASL_PASSWORD_FIEL": "canary"})
    assert str(refused.value).splitlines() == [
        "QUOTAS_DATABASE_URL: QUOTAS_DATABASE_URL_FILE is set, too; set one of them.",
        (
            "QUOTAS_KAFKA_SASL_PASSWORD: the file of QUOTAS_KAFKA_SASL_PASSWORD_FILE cannot be "
            "read: No such file or directory."
        ),
        (
            "QUOTAS_KAFKA_SASL_PASSWORD_FIEL is not a setting of this service; check its spelling. "
            "Is it QUOTAS_KAFKA_SASL_PASSWORD_FILE?"
        ),
        (
            "QUOTAS_KAFKA_SSL_KEY_PASSWORD: the file of QUOTAS_KAFKA_SSL_KEY_PASSWORD_FILE cannot "
            "be read: it is not UTF-8."
        ),
        "QUOTAS_MIGRATION_DATABASE_URL: a database URL begins with postgresql://.",
        "QUOTAS_TLS_KEY_PASSWORD: the file of QUOTAS_TLS_KEY_PASSWORD_FILE is empty.",
    ]


SECRET = "s3cret-canary"

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
    tokens = {"QUOTAS_TOKENS_FILE": str(write_tokens(folder)), "QUOTAS_PORT": "0"}
    return {**NEEDED, **tokens, **CASES[name][0]}


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
