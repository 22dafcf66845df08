import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from importlib.metadata import version
from pathlib import Path

import pytest
import structlog

from app.domain.entities import Caller
from app.http.middleware import open_context
from app.logs import configure_logs
from app.main import main
from app.setting_types import LogFormat
from tests.testkit.service import STARTS_WITHIN_S, environment

Output = pytest.CaptureFixture[bytes]


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers, logging.root.level
    yield
    logging.root.handlers = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


def logged(capsysbinary: Output) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]


def test_our_lines_and_those_of_libraries_are_json_objects_with_the_same_fields(
    capsysbinary: Output,
):
    configure_logs(LogFormat.JSON, "INFO")
    structlog.get_logger("app.ours").info("request", status=200)
    logging.getLogger("library").warning("slow: %s s", 3)
    ours, theirs = logged(capsysbinary)
    assert ours["status"] == 200
    assert [ours["event"], ours["level"], ours["logger"]] == ["request", "info", "app.ours"]
    assert [theirs["event"], theirs["level"], theirs["logger"]] == [
        "slow: 3 s",
        "warning",
        "library",
    ]
    assert "timestamp" in ours
    assert "timestamp" in theirs


def test_libraries_do_not_repeat_what_our_own_lines_say(capsysbinary: Output):
    configure_logs(LogFormat.JSON, "DEBUG")
    logging.getLogger("psycopg.pool").warning("error connecting in 'writing'")
    logging.getLogger("uvicorn.access").info("GET /quotas")
    assert not logged(capsysbinary)


def test_any_text_a_caller_may_send_is_one_line(capsysbinary: Output):
    configure_logs(LogFormat.JSON, "INFO")
    texts = ["two\nlines", "é", "\ud800 alone", "\u2028"]
    for text in texts:
        structlog.get_logger("app.ours").info("request", principal=text)
    assert [line["principal"] for line in logged(capsysbinary)] == texts


def test_a_number_beyond_64_bits_is_written_with_every_digit(capsysbinary: Output):
    configure_logs(LogFormat.JSON, "INFO")
    structlog.get_logger("app.ours").info("request", number=2**70)
    assert logged(capsysbinary)[0]["number"] == 2**70


def test_a_fault_is_logged_with_its_traceback(capsysbinary: Output):
    configure_logs(LogFormat.JSON, "INFO")
    try:
        divmod(1, 0)
    except ZeroDivisionError:
        structlog.get_logger("app.ours").exception("fault")
    (line,) = logged(capsysbinary)
    assert "ZeroDivisionError" in str(line["exception"])


def test_lines_below_the_level_are_left_out(capsysbinary: Output):
    configure_logs(LogFormat.JSON, "WARNING")
    structlog.get_logger("app.ours").info("request")
    logging.getLogger("library").info("request")
    assert logged(capsysbinary) == []


def test_text_for_people_holds_what_no_encoding_has(capsysbinary: Output):
    configure_logs(LogFormat.TEXT, "INFO")
    structlog.get_logger("app.ours").info("request", principal="\ud800 alone")
    assert b"request" in capsysbinary.readouterr().out


def test_each_line_within_a_request_names_the_request_and_its_caller(capsysbinary: Output):
    configure_logs(LogFormat.JSON, "INFO")
    scope = {"type": "http", "headers": []}

    def handle() -> None:
        context = open_context(scope, "req-1")
        logging.getLogger("library").warning("before there is a caller")
        context.caller = Caller("User:alice", "192.0.2.1", "bearer-token")
        logging.getLogger("library").warning("afterwards")

    copy_context().run(handle)
    structlog.get_logger("app.ours").info("outside")
    before, after, outside = logged(capsysbinary)
    assert [before["request_id"], after["request_id"]] == ["req-1", "req-1"]
    assert "principal" not in before
    assert after["principal"] == "User:alice"
    assert "request_id" not in outside


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
    code, printed = dev(PORT="80000", POLICY_FILE=str(policy))
    assert code == 2
    beginnings = ["QUOTAS_PORT: input should be", f"QUOTAS_POLICY_FILE: {policy}, line 1: not YAML"]
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


def test_a_process_that_has_passwords_leaves_no_core_dump():
    code = """
import os
import resource
import app.server
from app.main import main
for command in ("serve", "migrate"):
    if not os.fork():
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        print(command, main([command]), resource.getrlimit(resource.RLIMIT_CORE), flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=STARTS_WITHIN_S,
        check=False,
    )
    assert done.stdout == "serve 2 (0, 0)\nmigrate 2 (0, 0)\n", done.stderr
