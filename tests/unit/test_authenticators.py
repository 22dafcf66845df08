"""Settings of TLS, certificates, proxies and passwords that are passed on to the brokers."""

import logging
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from app.authenticators import Credentials, protected, tls_context, token_rules
from app.cluster_settings import read_clusters
from app.domain.errors import UnauthenticatedError
from app.http.authentication.authenticator import Presented
from app.http.guards import authenticate
from app.kafka.config import KafkaLogin, ssl_context
from app.metrics import Metrics
from app.server import read_listeners
from app.setting_types import AuthenticatorKind
from app.settings import Settings, SettingsError
from app.startup_checks import load_settings, warn
from tests.testkit.certificates import Authority, person
from tests.testkit.service import write_tokens

NEEDED = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@127.0.0.1:1/quotas",
}
AUTHORITY = Authority()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server's certificate, an authority, and what is neither."""
    tmp_path = tmp_path_factory.mktemp("files")
    server = AUTHORITY.sign(person("server"), host="127.0.0.1")
    server.write(tmp_path / "server.pem")
    (tmp_path / "authority.pem").write_text(AUTHORITY.own.pem)
    (tmp_path / "leaf.pem").write_text(server.pem)
    (tmp_path / "empty.pem").write_text("")
    AUTHORITY.sign(person("other")).write(tmp_path / "other.pem")
    write_tokens(tmp_path)
    return tmp_path


def environ(files: Path, **changes: str) -> dict[str, str]:
    """Return variables; ``{}`` in a value stands for the folder."""
    tokens = {"QUOTAS_TOKENS_FILE": str(files / "tokens.json")}
    named = {
        f"QUOTAS_{name.upper()}": value.replace("{}", str(files)) for name, value in changes.items()
    }
    return {**NEEDED, **tokens, **named}


def pairs(words: str) -> dict[str, str]:
    """Return settings that are written as ``name=value name=value``."""
    return dict(word.split("=", 1) for word in words.split())


def settings(files: Path, **changes: str) -> Settings:
    return load_settings(environ(files, **changes))


BAD = r"""trusted_proxies=10.0.0.1,0.0.0.0/0
    QUOTAS_TRUSTED_PROXIES: everybody is no proxy
trusted_proxies=::/0
    QUOTAS_TRUSTED_PROXIES: everybody is no proxy
trusted_proxies=0.0.0.0/1,128.0.0.0/1
    QUOTAS_TRUSTED_PROXIES: everybody is no proxy
trusted_proxies=proxy.example.org
    QUOTAS_TRUSTED_PROXIES: 'proxy.example.org' does not appear to be
trusted_proxies=10.0.0.1/8
    QUOTAS_TRUSTED_PROXIES: 10.0.0.1/8 has host bits set.
trusted_proxies=::ffff:10.0.0.0/104
    QUOTAS_TRUSTED_PROXIES: write ::ffff:10.0.0.0/104 as an IPv4
forwarded_header=forwarded
    QUOTAS_TRUSTED_PROXIES is needed with QUOTAS_FORWARDED_HEADER and not set.
tls_port=8443
    QUOTAS_TLS_CERT_FILE is needed with QUOTAS_TLS_PORT and not set.
tls_client_ca_file={}/authority.pem
    QUOTAS_TLS_CERT_FILE is needed with QUOTAS_TLS_CLIENT_CA_FILE and not set.
tls_cert_file=/no/such/file
    QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used: No such file
tls_cert_file={}/leaf.pem
    QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used:
tls_cert_file={}/leaf.pem tls_key_file={}/other.pem
    QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used:
tls_cert_file={}/server.pem tls_client_ca_file={}/empty.pem
    QUOTAS_TLS_CLIENT_CA_FILE: it cannot be used:
oidc_principal_prefix=User:
    QUOTAS_OIDC_PRINCIPAL_PREFIX: The credential's name is one that nobody may have.
port=8443 tls_port=8443 tls_cert_file={}/server.pem
    QUOTAS_PORT, QUOTAS_TLS_PORT: each needs a port of its own.
ssl_principal_mapping_rules=DEFAULT,RULE:x
    QUOTAS_SSL_PRINCIPAL_MAPPING_RULES: 'RULE:x' is neither DEFAULT nor RULE:
ssl_principal_mapping_rules=RULE:\p{L}/x/
    QUOTAS_SSL_PRINCIPAL_MAPPING_RULES: '\\p{L}' has \p at position 1
authenticators=bearer,certificate
    QUOTAS_AUTHENTICATORS: it takes each of these once at most, which are configured: bearer.
authenticators=bearer,bearer
    QUOTAS_AUTHENTICATORS:
authenticators=kerberos
    QUOTAS_AUTHENTICATORS:"""
"""Settings, and how the refusal of them begins; ``{}`` is the folder of the files."""


def test_what_cannot_be_used_stops_the_start_and_is_named(files: Path, subtests: pytest.Subtests):
    lines = BAD.splitlines()
    for words, beginning in zip(lines[::2], lines[1::2], strict=True):
        with subtests.test(words):
            with pytest.raises(SettingsError) as caught:
                settings(files, **pairs(words))
            assert str(caught.value).startswith(beginning.strip())
            assert "\n" not in str(caught.value)


def test_everybody_is_a_warning_in_development(files: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        warn(settings(files, mode="development", trusted_proxies="0.0.0.0/0"))
    assert "everybody is no proxy" in caplog.text


def test_tls_is_of_a_version_that_is_still_good(files: Path):
    context = tls_context(settings(files, tls_cert_file="{}/server.pem"))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE


def test_a_client_certificate_is_asked_for_and_not_demanded(files: Path):
    changes = {"tls_cert_file": "{}/server.pem", "tls_client_ca_file": "{}/authority.pem"}
    context = tls_context(settings(files, **changes))
    assert context is not None
    assert context.verify_mode is ssl.CERT_OPTIONAL


def test_a_key_with_a_password_is_opened_with_it(files: Path):
    AUTHORITY.sign(person("locked")).write(files / "locked.pem", "secret")
    (files / "password").write_text("secret\n", encoding="utf-8")
    own = {"tls_cert_file": "{}/locked.pem"}
    at_brokers = {"kafka_security_protocol": "SSL", "kafka_ssl_cert_file": "{}/locked.pem"}
    read = settings(
        files,
        **own,
        **at_brokers,
        tls_key_password="secret",
        kafka_ssl_key_password_file="{}/password",
    )
    assert tls_context(read) is not None
    assert ssl_context(read.kafka) is not None
    with pytest.raises(SettingsError) as caught:
        settings(files, **own, **at_brokers, tls_key_password="wrong")
    brokers, ours = str(caught.value).splitlines()
    assert brokers == "QUOTAS_KAFKA_SSL_…: it cannot be used: the key has a password."
    assert ours.startswith("QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used: ")


@pytest.mark.parametrize(
    ("changes", "ports"),
    [
        ({}, [(8080, False)]),
        ({"tls_cert_file": "{}/server.pem"}, [(8080, True)]),
        ({"tls_cert_file": "{}/server.pem", "tls_port": "8443"}, [(8080, False), (8443, True)]),
    ],
)
def test_tls_has_the_port_or_one_of_its_own(
    files: Path, changes: dict[str, str], ports: list[tuple[int, bool]]
):
    read = settings(files, **changes)
    assert [(listener.port, listener.tls is not None) for listener in read_listeners(read)] == ports
    assert read.has_plain_listener is any(not encrypted for _, encrypted in ports)


ALL = """
tls_cert_file={}/server.pem tls_client_ca_file={}/authority.pem
"""
BEARER, CERTIFICATE = AuthenticatorKind.BEARER, AuthenticatorKind.CERTIFICATE


def test_authenticators_are_enabled_by_what_is_configured(files: Path, subtests: pytest.Subtests):
    for words, enabled in [
        ("", [BEARER]),
        (ALL, [BEARER, CERTIFICATE]),
        (f"{ALL} tokens_file=", [CERTIFICATE]),
        (f"{ALL} authenticators=certificate", [CERTIFICATE]),
        (f"{ALL} authenticators=certificate,bearer", [CERTIFICATE, BEARER]),
    ]:
        with subtests.test(words):
            assert list(settings(files, **pairs(words)).enabled_authenticators) == enabled


async def test_authenticators_are_tried_in_their_order(files: Path):
    changes = pairs(f"{ALL} authenticators=certificate,bearer")
    async with AsyncExitStack() as stack:
        chosen = settings(files, **changes)
        tried = Credentials(chosen, Metrics(), stack).of_cluster(None, _no_sessions, stack)
        with pytest.raises(UnauthenticatedError) as caught:
            await authenticate(Presented(Headers(), "127.0.0.1", "127.0.0.1"), tried)
    assert caught.value.schemes == ("Certificate", "Bearer")


def _no_sessions(_: object) -> Any:
    raise AssertionError("nobody logs in at the brokers")


@pytest.mark.parametrize(
    ("changes", "privileged"),
    [
        ({}, {"User:root", "User:auditor"}),
        ({"oidc_privileged_principals": "User:auditor;User:bob"}, {"User:root"}),
        ({"oidc_principal_prefix": "oidc/"}, set()),
    ],
)
def test_a_provider_s_principal_is_privileged_by_a_prefix_or_a_list_alone(
    files: Path, changes: dict[str, str], privileged: set[str]
):
    oidc = {
        "oidc_issuer": "https://login.example.org",
        "oidc_audience": "quotas",
        "super_users": "User:root",
        "auditors": "User:auditor",
    }
    chosen = settings(files, **oidc, **changes)
    rules = token_rules(chosen, protected(read_clusters(chosen).privileged, chosen))
    assert rules is not None
    assert rules.privileged == privileged
    assert rules.principal_prefix == changes.get("oidc_principal_prefix", "")


LEAST = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "kafka.example.org:9092",
    "QUOTAS_KAFKA_SECURITY_PROTOCOL": "SSL",
    "QUOTAS_DATABASE_URL": "postgresql://quotas@/quotas",
}


def password_environ(**changes: str) -> dict[str, str]:
    return {**LEAST, **{f"QUOTAS_{name.upper()}": value for name, value in changes.items()}}


def password_settings(**changes: str) -> Settings:
    return Settings.from_env(password_environ(**changes))


def login_of(read: Settings) -> KafkaLogin | None:
    """Return how callers log in at the brokers of the one cluster."""
    (cluster,) = read_clusters(read).clusters.values()
    return cluster.login(read)


def test_passwords_are_taken_only_where_a_mechanism_is_named() -> None:
    assert login_of(password_settings()) is None
    servers = "kafka.example.org:9094"
    assert login_of(password_settings(basic_bootstrap_servers=servers)) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_they_go_over_tls_to_the_listener_that_is_named(mechanism: str) -> None:
    servers = "kafka.example.org:9094"
    login = login_of(
        password_settings(basic_sasl_mechanism=mechanism, basic_bootstrap_servers=servers)
    )
    assert login is not None
    kafka = login("alice", "secret")
    assert kafka.security_protocol.uses_tls
    assert kafka.addresses == (("kafka.example.org", 9094),)
    assert (kafka.sasl_username, kafka.sasl_mechanism) == ("alice", mechanism)
    assert "secret" not in repr(kafka)


def test_the_service_s_own_bootstrap_servers_are_the_default() -> None:
    login = login_of(password_settings(basic_sasl_mechanism="PLAIN"))
    assert login is not None
    assert login("alice", "secret").bootstrap_servers == "kafka.example.org:9092"


REFUSED = [
    "basic_sasl_mechanism=OAUTHBEARER",
    "basic_security_protocol=SSL",
    "basic_security_protocol=PLAINTEXT",
    "basic_security_protocol=SASL",
    "basic_bootstrap_servers=kafka",
    "kafka_ssl_ca_file=/there/is/no/such/file",
    "basic_security_protocol=SASL_PLAINTEXT",
    "basic_security_protocol=SASL_PLAINTEXT basic_sasl_mechanism=SCRAM-SHA-512",
    "basic_security_protocol=SASL_PLAINTEXT basic_bootstrap_servers=127.0.0.1:9094,10.0.0.1:9094",
]


def test_what_cannot_be_or_shows_passwords_stops_the_start(subtests: pytest.Subtests) -> None:
    for words in REFUSED:
        refusal = pytest.raises(SettingsError, match=r"\AQUOTAS_(BASIC|KAFKA_SSL)_.*\Z")
        with subtests.test(words), refusal:
            load_settings(password_environ(**{"basic_sasl_mechanism": "PLAIN", **pairs(words)}))


def test_in_development_passwords_in_the_clear_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = {"basic_security_protocol": "SASL_PLAINTEXT", "mode": "development"}
    with caplog.at_level(logging.WARNING):
        warn(load_settings(password_environ(basic_sasl_mechanism="PLAIN", **changes)))
    assert "SASL_PLAINTEXT sends the callers' passwords to the brokers unencrypted" in caplog.text


def test_to_this_machine_no_tls_is_needed() -> None:
    read = load_settings(
        password_environ(
            basic_sasl_mechanism="PLAIN",
            basic_security_protocol="SASL_PLAINTEXT",
            basic_bootstrap_servers="127.0.0.1:9094,localhost:9095,[::1]:9096",
        )
    )
    assert login_of(read) is not None


def test_passwords_alone_are_an_authenticator() -> None:
    read = load_settings(password_environ(basic_sasl_mechanism="PLAIN"))
    assert read.enabled_authenticators == (AuthenticatorKind.BASIC,)
