"""docker-compose.yml and deploy/ agree with each other, with the project, and with its tests."""

import json
import os
import re
import ssl
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from jsonschema import Draft202012Validator

from app.documents.clusters import read_clusters_file
from app.http.authentication.bearer import read_tokens
from app.localdev.jars import KAFKA_VERSION
from app.localdev.postgres import binary
from app.main import main
from app.settings import Settings
from app.startup_checks import find_unsafe
from tests.testkit.certificates import Authority, person
from tests.testkit.http import serving

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


def test_the_service_starts_in_production_only_with_its_switches(stack: Stack):
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


def test_the_migration_runs_as_the_owner(stack: Stack):
    with pytest.raises(SystemExit) as ended:
        main([*stack.services["migrate"]["command"], "--help"])
    assert ended.value.code == 0
    environ = {"QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "unused:0", **stack.environment("migrate")}
    owner_url = Settings.from_env(environ).owner_database_url
    assert owner_url.startswith("postgresql://quotas_owner:")


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
    assert service["QUOTAS_SUPER_USERS"] == kafka["KAFKA_SUPER_USERS"]


def test_the_tokens_are_read_by_the_service_and_stay_when_the_script_runs_again(stack: Stack):
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


def test_both_files_fit_their_schema_and_two_clusters_the_service_and_the_other_file(
    stack: Stack, tmp_path: Path
):
    document = yaml.safe_load(text_of("docker-compose.clusters.yml"))
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    for each in (stack.document, document):
        assert [error.message for error in validator.iter_errors(each)] == []
    two = Stack(document, stack.secrets)
    extended = {
        service["extends"]["service"] for service in two.services.values() if "extends" in service
    }
    assert extended == stack.services.keys() - {"service"}
    wanted = [service.get("depends_on", ()) for service in two.services.values()]
    waited_for = {name for names in wanted for name in names}
    assert waited_for == two.services.keys() - {"service"}
    named = (*stack.document["secrets"], *document["secrets"])
    assert [name for name in named if not (stack.secrets / name).is_file()] == []

    text = text_of("deploy/clusters.yaml").replace("/run/secrets/", f"{stack.secrets}/")
    (tmp_path / "clusters.yaml").write_text(text, encoding="utf-8")
    clusters = read_clusters_file(tmp_path / "clusters.yaml")
    brokers = [each.bootstrap_servers for each in clusters.clusters.values()]
    assert brokers == ["kafka:9092", "kafka-staging:9092"]
    kafka = stack.environment("kafka")
    jaas = kafka["KAFKA_LISTENER_NAME_CLIENTS_PLAIN_SASL_JAAS_CONFIG"]
    for entry in clusters.clusters.values():
        assert f' user_{entry.sasl_username}="{entry.sasl_password}"' in jaas
        assert ";".join(sorted(entry.super_users)) == kafka["KAFKA_SUPER_USERS"]
    environ = {"QUOTAS_HOST": "0.0.0.0", **two.environment("service")}
    environ["QUOTAS_CLUSTERS_FILE"] = str(tmp_path / "clusters.yaml")
    assert find_unsafe(Settings.from_env(environ)) == []


class Instruction(NamedTuple):
    stage: int
    word: str
    rest: str


def instructions() -> list[Instruction]:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    found: list[Instruction] = []
    stage = 0
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            stage += word == "FROM"
            found.append(Instruction(stage, word, rest))
    return found


def those(word: str, stage: int | None = None) -> list[str]:
    wanted = [instruction for instruction in instructions() if instruction.word == word]
    return [item.rest for item in wanted if stage in (None, item.stage)]


def final_stage() -> int:
    return instructions()[-1].stage


def copied_paths() -> set[str]:
    copies = [rest.split() for rest in those("COPY") if not rest.startswith("--from")]
    copies = [[word for word in words if not word.startswith("--")] for words in copies]
    return {source for words in copies for source in words[:-1]}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_copied_path_exists_and_is_in_the_build_context_with_all_of_the_wheel():
    included = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for path in copied_paths():
        assert (ROOT / path).exists(), path
        assert {f"!{path.split('/')[0]}", f"!{Path(path).parent}"} & {*included}, path
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {"pyproject.toml", project()["project"]["readme"], "migrations", *packages}
    assert needed <= copied_paths()


def test_each_stage_has_the_oldest_supported_python_with_which_everything_is_tested():
    tested = (ROOT / ".python-version").read_text(encoding="utf-8").strip()
    assert project()["project"]["requires-python"] == f">={tested}"
    assert {rest.split()[0] for rest in those("FROM")} == {f"python:{tested}-slim", "wheel"}


def test_every_package_is_checked_by_its_hash_and_the_command_has_its_own_alone():
    options = re.compile("--requirement|--build-constraint")
    installs = [rest for rest in those("RUN") if options.search(rest)]
    assert len(installs) > 1
    for rest in installs:
        assert rest.count("--require-hashes") == len(options.findall(rest))
    stages = {rest.split()[2]: at for at, rest in enumerate(those("FROM"), 1)}
    (packages,) = those("RUN", stages["client-packages"])
    assert "requirements/client.txt" in packages
    assert "service.txt" not in packages
    assert those("COPY", stages["cli"])[0].startswith("--from=client-packages ")


def test_the_final_stage_builds_nothing_is_not_root_and_serves(capsys: pytest.CaptureFixture[str]):
    assert those("RUN", final_stage()) == []
    (user,) = set(those("USER"))
    assert len(those("USER", final_stage())) == len(those("USER", final_stage() - 1)) == 1
    assert all(int(number) > 0 for number in user.split(":"))
    (entry_point,) = json.loads(those("ENTRYPOINT", final_stage())[0])
    with pytest.raises(SystemExit):
        main([*json.loads(those("CMD")[0]), "--help"])
    assert f"usage: {entry_point} serve" in capsys.readouterr().out


NOWHERE = "http://127.0.0.1:1"


def alive(request: BaseHTTPRequestHandler) -> tuple[int, str]:
    return (200 if request.path == "/livez" else 404), ""


def probe(url: str, **settings: str) -> int:
    command = json.loads(those("HEALTHCHECK")[0].partition(" CMD ")[2])
    assert command[0] == "python"
    proxy = {"http_proxy": "http://192.0.2.1:9", "https_proxy": "http://192.0.2.1:9"}
    environ = {**os.environ, "QUOTAS_PORT": url.rpartition(":")[2], **proxy, **settings}
    done = subprocess.run(
        [sys.executable, *command[1:]], env=environ, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode


def test_the_health_check_asks_the_port_for_operations_if_any_and_fails_where_nothing_is_well():
    with serving(alive) as url:
        assert probe(url) == 0
        port = url.rpartition(":")[2]
        operations = {"QUOTAS_OPERATIONS_PORT": port, "QUOTAS_TLS_CERT_FILE": "server.pem"}
        assert probe(NOWHERE, **operations) == 0
    with serving(lambda _: (503, "")) as url:
        assert probe(url) == 1
    assert probe(NOWHERE) == 1


def test_the_health_check_speaks_tls_where_tls_alone_is_served(tmp_path: Path):
    certificate = tmp_path / "server.pem"
    Authority().sign(person("server"), host="192.0.2.1").write(certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with serving(alive, tls) as url:
        assert probe(url, QUOTAS_TLS_CERT_FILE=str(certificate)) == 0
    with serving(alive) as url:
        assert probe(url, QUOTAS_TLS_CERT_FILE=str(certificate), QUOTAS_TLS_PORT="8443") == 0
