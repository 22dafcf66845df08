"""The fork server of the tests: each start has its own environment, output and exit code."""

import signal
from pathlib import Path

import pytest

from tests.testkit.forkserver import DEADLINE_S, fork_server
from tests.testkit.service import environment


def test_a_start_has_its_own_environment_output_and_exit_code(tmp_path: Path):
    ends = {}
    for name in ("QUOTAS_PORTT", "QUOTAS_HOSTT"):
        out, errors = tmp_path / f"{name}.out", tmp_path / f"{name}.errors"
        process = fork_server().start(["serve"], environment({name: "1"}), out, errors)
        assert process.wait(DEADLINE_S) == 2
        assert (process.poll(), out.read_text()) == (2, "")
        ends[name] = errors.read_text()
    assert "QUOTAS_PORTT is not a setting" in ends["QUOTAS_PORTT"]
    assert "QUOTAS_HOSTT is not a setting" in ends["QUOTAS_HOSTT"]
    assert "QUOTAS_PORTT" not in ends["QUOTAS_HOSTT"]


def test_the_settings_of_a_developer_do_not_reach_a_service(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QUOTAS_PORT", "8080")
    assert environment({"QUOTAS_MODE": "development"}).get("QUOTAS_PORT") is None


def test_a_signal_ends_it_with_the_code_that_a_child_would_have(tmp_path: Path):
    arguments = ["migrate"]
    settings = {"QUOTAS_DATABASE_URL": "postgresql://quotas@192.0.2.1/quotas"}
    process = fork_server().start(arguments, environment(settings), tmp_path / "out")
    process.send_signal(signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    process.send_signal(signal.SIGKILL)
