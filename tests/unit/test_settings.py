"""What each setting takes, and what stops the start: a sentence for each fault, no secret."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from app.http.authentication.proxies import ForwardedHeader
from app.service.ports.alterations import Failpoints
from app.setting_types import variable
from app.settings import GONE, SECRETS, Settings, SettingsError, UnreadSettingError, fields
from app.startup_checks import load_settings
from tests.testkit.service import write_tokens

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
        MAX_HANDSHAKES="",
    )
    assert read.super_users == {"User:a", "User:CN=b,O=c"}
    assert read.trusted_proxies == (ip_network("10.0.0.5"), ip_network("2001:db8::/32"))
    assert read.forwarded_header is ForwardedHeader.FORWARDED
    assert read.oidc_algorithms == ("RS256", "ES256")
    assert read.test_failpoint == Failpoints("after_intent", "stop")
    assert read.cors_origins == ("https://portal.example", "http://[::1]:3000")
    assert read.max_handshakes == 200


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


@pytest.mark.parametrize("field", GONE)
def test_a_setting_that_is_gone_stops_the_start_and_says_what_to_do_instead(field: str):
    name = variable(field)
    with pytest.raises(SettingsError) as refused:
        settings(**{field.upper(): "1"})
    (sentence,) = str(refused.value).splitlines()
    assert sentence.startswith(f"{name} is gone. ")
    assert sentence.endswith(".")
    assert field not in fields()
    gone = Path("docs/configuration.md").read_text(encoding="utf-8").partition("| Gone |")[2]
    assert f"`{name}`" in gone


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


UNUSABLE = """database_url=
    QUOTAS_DATABASE_URL is needed and not set.
database_url=mysql://quotas:s3cret-canary@127.0.0.1/quotas
    QUOTAS_DATABASE_URL: a database URL begins with postgresql://
kafka_bootstrap_servers=
    QUOTAS_KAFKA_BOOTSTRAP_SERVERS is needed and not set.
kafka_bootstrap_servers=kafka
    QUOTAS_KAFKA_BOOTSTRAP_SERVERS: The bootstrap server at position 1 is not host:port.
kafka_security_protocol=TLS
    QUOTAS_KAFKA_SECURITY_PROTOCOL: input should be 'PLAINTEXT', 'SSL',
kafka_security_protocol=SASL_SSL kafka_sasl_mechanism=PLAIN kafka_sasl_username=service
    QUOTAS_KAFKA_SASL_PASSWORD is needed with QUOTAS_KAFKA_SECURITY_PROTOCOL=SASL_SSL and
kafka_security_protocol=SSL kafka_ssl_ca_file=/no/such/file
    QUOTAS_KAFKA_SSL_…: it cannot be used: No such file or directory.
events_topic=no/slash
    QUOTAS_EVENTS_TOPIC: it takes 1 to 249 of letters, digits, dots, _ and -.
events_bootstrap_servers=127.0.0.1:9092
    QUOTAS_EVENTS_TOPIC is needed with QUOTAS_EVENTS_BOOTSTRAP_SERVERS and not set.
events_topic=events events_ssl_ca_file=/no/such/file
    QUOTAS_EVENTS_BOOTSTRAP_SERVERS is needed with QUOTAS_EVENTS_SSL_CA_FILE and not set.
events_topic=t events_bootstrap_servers=h:1 events_security_protocol=SASL_SSL \
 events_sasl_mechanism=PLAIN events_sasl_password=x
    QUOTAS_EVENTS_SASL_USERNAME is needed with QUOTAS_EVENTS_SECURITY_PROTOCOL=SASL_SSL and not set.
events_topic=events events_bootstrap_servers=h:1 events_security_protocol=SSL events_ssl_ca_file=/no
    QUOTAS_EVENTS_SSL_…: it cannot be used: No such file or directory.
kafka_sasl_mechanism=GSSAPI
    QUOTAS_KAFKA_SASL_MECHANISM: input should be 'PLAIN', 'SCRAM-SHA-256' or
kafka_password=s3cret-canary
    QUOTAS_KAFKA_PASSWORD is not a setting of this service; check its spelling.
portt=8080
    QUOTAS_PORTT is not a setting of this service; check its spelling. Is it QUOTAS_PORT?
port=eighty
    QUOTAS_PORT: input should be
host=192.0.2.300 tls_terminated_upstream=true
    QUOTAS_HOST: '192.0.2.300' cannot be listened on:
mode=test
    QUOTAS_MODE: input should be
log_level=LOUD
    QUOTAS_LOG_LEVEL: input should be
shutdown_grace_s=-1
    QUOTAS_SHUTDOWN_GRACE_S: input should be
allow_everyone_if_no_acl_found=perhaps
    QUOTAS_ALLOW_EVERYONE_IF_NO_ACL_FOUND: input should be
super_users=User:root;admin
    QUOTAS_SUPER_USERS: expected a principal such as User:alice, got 'admin'
auditors=auditor
    QUOTAS_AUDITORS: expected a principal such as User:alice, got 'auditor'
tokens_file=
    QUOTAS_TOKENS_FILE, QUOTAS_OIDC_ISSUER or another credential of QUOTAS_AUTHENTICATORS is needed
tokens_file=/no/such/file
    QUOTAS_TOKENS_FILE: The tokens file /no/such/file cannot be used: No such file
oidc_issuer=https://login.example.org
    QUOTAS_OIDC_AUDIENCE is needed with QUOTAS_OIDC_ISSUER and not set.
oidc_issuer=http://login.example.org oidc_audience=quotas
    QUOTAS_OIDC_ISSUER: it must begin with https:// (http:// on this machine
oidc_jwks_url=file:///keys
    QUOTAS_OIDC_JWKS_URL: it must begin with https:// (http:// on this machine only).
oidc_algorithms=RS256,HS256
    QUOTAS_OIDC_ALGORITHMS: it takes some of ES256, ES384, ES512, EdDSA, PS256, PS384, PS512, RS256,
clusters_file=/no/such/file kafka_bootstrap_servers=
    QUOTAS_CLUSTERS_FILE: /no/such/file: file cannot be read: No such file or directory.
oidc_ca_file=/no/such/file
    QUOTAS_OIDC_CA_FILE: it cannot be used: No such file or directory.
mode=production reads_per_s=0
    QUOTAS_READS_PER_S: 0 is no limit, so one caller may use up this process.
"""
"""Settings, and how the only sentence about them begins."""


def test_what_cannot_be_used_is_reported_in_a_sentence(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    usable = {**NEEDED, "QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path)), "QUOTAS_PORT": "0"}
    lines = UNUSABLE.splitlines()
    for words, beginning in zip(lines[::2], lines[1::2], strict=True):
        pairs = (word.split("=", 1) for word in words.split())
        changes = {f"QUOTAS_{name.upper()}": value for name, value in pairs}
        with subtests.test(words):
            with pytest.raises(SettingsError) as caught:
                load_settings({**usable, **changes}, listens=True)
            (sentence,) = str(caught.value).splitlines()
            assert sentence.startswith(beginning.strip())
            assert "canary" not in sentence


BESIDE = {
    "kafka_bootstrap_servers": "kafka:9092",
    "kafka_security_protocol": "SSL",
    "kafka_sasl_username": "quotas",
    "super_users": "User:root",
    "auditors": "User:auditor",
    "allow_everyone_if_no_acl_found": "true",
    "policy_file": "/etc/policy.yaml",
    "callback_file": "/etc/callback.yaml",
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk",
}


@pytest.fixture
def several(tmp_path: Path) -> dict[str, str]:
    """The least settings of a service of two clusters."""
    path = tmp_path / "clusters.yaml"
    path.write_text("default: a\nclusters: {a: {bootstrap_servers: '127.0.0.1:1'}}\n")
    tokens = {"QUOTAS_TOKENS_FILE": str(write_tokens(tmp_path)), "QUOTAS_PORT": "0"}
    database = {"QUOTAS_DATABASE_URL": NEEDED["QUOTAS_DATABASE_URL"]}
    return {**tokens, **database, "QUOTAS_CLUSTERS_FILE": str(path)}


@pytest.mark.parametrize("field", BESIDE)
def test_a_setting_of_one_cluster_beside_the_file_of_clusters_is_refused(
    several: dict[str, str], field: str
):
    load_settings({**several, "QUOTAS_KAFKA_REQUEST_TIMEOUT_MS": "100"})
    with pytest.raises(SettingsError) as caught:
        load_settings({**several, variable(field): BESIDE[field]})
    expected = f"{variable(field)}: set nothing of one cluster beside QUOTAS_CLUSTERS_FILE"
    assert any(line.startswith(expected) for line in str(caught.value).splitlines())


def test_what_a_cluster_of_the_file_names_stops_the_start_too(
    several: dict[str, str], tmp_path: Path
):
    (tmp_path / "bad.yaml").write_text("rules: 1\n")
    Path(several["QUOTAS_CLUSTERS_FILE"]).write_text(
        """
default: a
clusters:
  a: {bootstrap_servers: "127.0.0.1:1", policy_file: bad.yaml, callback: {class: a.B, model: none}}
  b: {bootstrap_servers: "127.0.0.1:1", security_protocol: SSL, ssl_ca_file: none.pem}
  c: {bootstrap_servers: "kafka.example:9092", callback: none.yaml}
"""
    )
    with pytest.raises(SettingsError) as caught:
        load_settings(several)
    prefix = "QUOTAS_CLUSTERS_FILE: clusters."
    named = {line.removeprefix(prefix).split(":")[0] for line in str(caught.value).splitlines()}
    assert named == {
        "a.policy_file",
        "a.callback",
        "b.ssl_…",
        "c.callback",
        "c.security_protocol",
    }
