"""docker-compose.yml and deploy/ agree with each other, with the project, and with its tests."""

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.http.authentication.bearer import read_tokens
from app.localdev.jars import KAFKA_VERSION
from app.localdev.postgres import binary
from app.main import main
from app.settings import Settings
from app.startup_checks import find_unsafe

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Stack:
    """The file, and the directory of the secrets that the script made for it."""

    document: dict[str, Any]
    secrets: Path

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        services: dict[str, dict[str, Any]] = self.document["services"]
        return services

    def environment(self, name: str) -> dict[str, str]:
        file = self.secrets / Path(self.services[name]["env_file"]).name
        return {**read_env_file(file), **self.services[name].get("environment", {})}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    secrets = tmp_path_factory.mktemp("deploy") / "secrets"
    make_secrets(secrets)
    return Stack(yaml.safe_load(text_of("docker-compose.yml")), secrets)


def make_secrets(directory: Path) -> str:
    command = ["sh", ROOT / "deploy" / "make-secrets.sh", directory]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def read_env_file(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(re.fullmatch("(.+?)='(.*)'", line).groups() for line in lines)


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def named_files(stack: Stack) -> Iterator[Path]:
    for secret in stack.document["secrets"].values():
        yield Path(secret["file"])
    for service in stack.services.values():
        if "env_file" in service:
            yield Path(service["env_file"])
        for volume in service.get("volumes", []):
            if volume.startswith("./"):
                yield Path(volume.split(":")[0])


def test_every_file_that_it_names_is_there_or_is_made_by_the_script(stack: Stack):
    paths = list(named_files(stack))
    assert len(paths) > 5
    for path in paths:
        made = path.parent == Path("deploy/secrets")
        assert (stack.secrets / path.name if made else ROOT / path).is_file(), path


def test_each_dependency_can_meet_its_condition(stack: Stack):
    conditions = [
        (name, wanted["condition"] == "service_healthy")
        for service in stack.services.values()
        for name, wanted in service.get("depends_on", {}).items()
    ]
    assert len(conditions) > 1
    for name, runs_on in conditions:
        assert runs_on == ("test" in stack.services[name].get("healthcheck", {})), name


def test_the_images_are_those_that_the_tests_run(stack: Stack):
    images = {name: service.get("image") for name, service in stack.services.items()}
    assert images["kafka"] == images["acls"] == f"apache/kafka:{KAFKA_VERSION}"
    command = [binary("postgres"), "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert images["postgres"] == f"postgres:{re.search('[0-9]+', version)[0]}"


def test_the_service_understands_its_settings(stack: Stack):
    settings = Settings.from_env(stack.environment("service"))
    assert settings.kafka_bootstrap_servers == "kafka:9092"
    assert settings.tokens_file == Path("/run/secrets/tokens.json")


def test_the_service_starts_in_production_only_with_what_is_said_aloud(stack: Stack):
    environ = {"QUOTAS_HOST": "0.0.0.0", **stack.environment("service")}
    assert find_unsafe(Settings.from_env(environ)) == []
    ports = [port for service in stack.services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    switches = [name for name, value in environ.items() if value == "true"]
    assert sorted(switches) == [
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_KAFKA",
        "QUOTAS_INSECURE_ALLOW_PLAINTEXT_POSTGRES",
        "QUOTAS_TLS_TERMINATED_UPSTREAM",
    ]
    for name in switches:
        without = {key: value for key, value in environ.items() if key != name}
        (fault,) = find_unsafe(Settings.from_env(without))
        assert name in fault


def test_migrate_is_a_command_and_runs_as_the_owner(stack: Stack):
    with pytest.raises(SystemExit) as ended:
        main([*stack.services["migrate"]["command"], "--help"])
    assert ended.value.code == 0
    environ = {"QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "unused:0", **stack.environment("migrate")}
    settings = Settings.from_env(environ)
    assert settings.owner_database_url.startswith("postgresql://quotas_owner:")
    assert settings.database_url.get_secret_value().startswith("postgresql://quotas_service:")


def test_the_roles_get_the_passwords_of_the_urls(stack: Stack):
    postgres, migrate = stack.environment("postgres"), stack.environment("migrate")
    assert f":{postgres['QUOTAS_OWNER_PASSWORD']}@" in migrate["QUOTAS_MIGRATION_DATABASE_URL"]
    assert f":{postgres['QUOTAS_SERVICE_PASSWORD']}@" in migrate["QUOTAS_DATABASE_URL"]
    assert migrate["QUOTAS_DATABASE_URL"] == stack.environment("service")["QUOTAS_DATABASE_URL"]
    wanted = re.findall(r"^\\getenv \w+ (\w+)$", text_of("deploy/roles.sql"), re.MULTILINE)
    assert sorted(wanted) == ["QUOTAS_OWNER_PASSWORD", "QUOTAS_SERVICE_PASSWORD"]


def test_the_service_has_an_account_of_kafka_that_is_no_super_user(stack: Stack):
    service, kafka = stack.environment("service"), stack.environment("kafka")
    user, password = service["QUOTAS_KAFKA_SASL_USERNAME"], service["QUOTAS_KAFKA_SASL_PASSWORD"]
    accounts = kafka["KAFKA_LISTENER_NAME_CLIENTS_PLAIN_SASL_JAAS_CONFIG"]
    assert f' user_{user}="{password}"' in accounts
    assert f"User:{user}" not in kafka["KAFKA_SUPER_USERS"].split(";")
    assert f"allow User:{user} " in text_of("deploy/acls.sh")


def test_the_service_knows_the_super_users_of_the_broker(stack: Stack):
    service, kafka = stack.environment("service"), stack.environment("kafka")
    assert service["QUOTAS_SUPER_USERS"] == kafka["KAFKA_SUPER_USERS"]


def test_the_tokens_are_read_by_the_service_and_kept_when_the_script_runs_again(stack: Stack):
    tokens = read_tokens(stack.secrets / "tokens.json")
    principals = {entry.principal for entry in tokens.values()}
    assert principals == {"User:alice", "User:bob", "User:mallory", "User:auditor"}
    assert "is there already" in make_secrets(stack.secrets)
    assert read_tokens(stack.secrets / "tokens.json") == tokens


def test_what_holds_a_password_or_a_token_is_private_and_not_committed(stack: Stack):
    assert stat.S_IMODE(stack.secrets.stat().st_mode) == 0o700
    for path in (*stack.secrets.glob("*.env"), *stack.secrets.glob("*.token")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert "secrets/" in text_of("deploy/.gitignore").splitlines()


COMPOSE = Path(__file__).resolve().parents[2] / "docker-compose.yml"


def check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, path], capture_output=True, text=True, check=False)


def test_it_fits_the_schema():
    done = check(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_refuses_a_misspelt_word(tmp_path: Path):
    misspelt = tmp_path / "docker-compose.yml"
    text = COMPOSE.read_text(encoding="utf-8")
    misspelt.write_text(text.replace("healthcheck:", "healtcheck:", 1), encoding="utf-8")
    done = check(misspelt)
    assert done.returncode == 1
    assert "healtcheck" in done.stdout
