"""The server's command, and what it says of settings."""

from importlib.metadata import version

import pytest

from app.main import main
from app.settings import Settings, SettingsError


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kafka-quota-service {version('kafka-quota-service')}\n"


def test_what_is_missing_is_named_with_its_meaning_and_what_is_misspelt_with_what_is_near():
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
