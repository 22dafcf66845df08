"""What each setting takes, and what is wrong with a variable."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from app.http.authentication.proxies import ForwardedHeader
from app.service.runtime.tasks import Failpoints
from app.settings import SECRETS, Settings, SettingsError, UnreadSettingError

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


def test_a_process_serves_alone_by_default():
    assert settings().workers == 1


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
