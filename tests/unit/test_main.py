"""The server's command."""

import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from app.main import main
from tests.testkit.service import STARTS_WITHIN_S, environment


@pytest.fixture
def dev(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run `dev` with these variables to its end; return its exit code and what it prints."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(**variables: str) -> tuple[int, str]:
        local = {"LOCAL_DIR": str(tmp_path / "local"), "PORT": "0"}
        for name, value in {**local, **variables}.items():
            monkeypatch.setenv(f"QUOTAS_{name}", value)
        code = main(["dev"])
        assert not (tmp_path / "local" / "kafka").exists()
        assert not (tmp_path / "local" / "postgres").exists()
        return code, capsys.readouterr().err

    return run


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kafka-quota-service {version('kafka-quota-service')}\n"


def test_dev_finds_what_is_wrong_with_settings_before_it_starts_anything(
    dev: Callable[..., tuple[int, str]], tmp_path: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [", encoding="utf-8")
    code, printed = dev(
        PORT="80000",
        PROT="1",
        KAFKA_BOOTSTRAP_SERVER="kafka:9092",
        POLICY_FILE=str(policy),
        TLS_PORT="none",
    )
    assert code == 2
    beginnings = [
        "QUOTAS_KAFKA_BOOTSTRAP_SERVER is not a setting of this service; check its spelling. Is ",
        "QUOTAS_PORT: input should be less than or equal to 65535.",
        "QUOTAS_PROT is not a setting of this service; check its spelling. Is it QUOTAS_PORT?",
        "QUOTAS_TLS_PORT: input should be a valid integer",
        f"QUOTAS_POLICY_FILE: {policy}, line 1: not YAML",
    ]
    lines = printed.splitlines()
    assert len(lines) == len(beginnings), printed
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(beginning)


def test_dev_ignores_settings_of_the_account_of_a_broker_that_is_not_used(
    dev: Callable[..., tuple[int, str]],
):
    account = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SSL_CA_FILE": "/no/such/file"}
    code, printed = dev(**account, KAFKA_REQUEST_TIMEOUT_MS="1")
    assert (code, printed.count("\n")) == (2, 1)
    assert printed.startswith("QUOTAS_KAFKA_REQUEST_TIMEOUT_MS: ")


def test_a_folder_that_dev_cannot_write_to_is_one_sentence(
    dev: Callable[..., tuple[int, str]], tmp_path: Path
):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "local"
    sentence = f"QUOTAS_LOCAL_DIR: {path} cannot be used: Not a directory.\n"
    assert dev(LOCAL_DIR=str(path)) == (1, sentence)
    (tmp_path / "dir" / "dev.lock").mkdir(parents=True)
    code, printed = dev(LOCAL_DIR=str(tmp_path / "dir"))
    assert code == 1
    assert printed == f"QUOTAS_LOCAL_DIR: {tmp_path / 'dir'} cannot be used: Is a directory.\n"


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_a_process_that_has_passwords_leaves_no_core_dump(command: str):
    code = f"""
import resource
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
from app.main import main
assert main([{command!r}]) == 2
print(resource.getrlimit(resource.RLIMIT_CORE))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=STARTS_WITHIN_S,
        check=False,
    )
    assert done.stdout == "(0, 0)\n", done.stderr
