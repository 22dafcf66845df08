"""What `dev` stores between runs: its directory, its state, its tokens; and free ports."""

import hashlib
import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.localdev.local_directory import (
    LocalDevError,
    forget,
    held,
    local_directory,
    read_state,
    write_private,
    write_state,
)
from app.localdev.processes import HOST, free_ports, is_free
from app.localdev.service import tokens_file, write_tokens


def test_the_directory_is_dot_local_here_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert local_directory({}) == tmp_path / ".local"
    assert local_directory({"QUOTAS_LOCAL_DIR": "other"}) == tmp_path / "other"


def test_a_directory_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path):
    with (
        held(tmp_path),
        pytest.raises(LocalDevError, match=r"Another `make run` \(process \d+\)"),
        held(tmp_path),
    ):
        pass


def test_a_directory_in_use_is_not_forgotten(tmp_path: Path):
    with held(tmp_path), pytest.raises(LocalDevError, match="Another"):
        forget(tmp_path)
    forget(tmp_path)
    assert not tmp_path.exists()


def test_a_directory_that_is_not_ours_is_not_forgotten(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(LocalDevError, match="nothing was removed"):
        forget(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_forgetting_what_never_was_is_no_error(tmp_path: Path):
    forget(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_was_never_written_is_empty(tmp_path: Path):
    assert read_state(tmp_path / "state.json") == {}


def test_a_state_comes_back_and_is_private(tmp_path: Path):
    path = tmp_path / "state.json"
    write_state(path, {"ports": {"PLAINTEXT": 1}})
    write_state(path, {"ports": {"PLAINTEXT": 2}})
    assert read_state(path) == {"ports": {"PLAINTEXT": 2}}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_left_by_an_interrupted_write_is_no_obstacle(tmp_path: Path):
    (tmp_path / "secret.part").write_text("half")
    write_private(tmp_path / "secret", "whole")
    assert (tmp_path / "secret").read_text() == "whole"
    assert not (tmp_path / "secret.part").exists()


NAMES = ("User:alice", "User:bob")


def test_the_service_gets_the_hash_of_each_token_and_a_year(tmp_path: Path):
    tokens = write_tokens(tmp_path, NAMES)
    accepted = json.loads(tokens_file(tmp_path).read_text())
    for entry in accepted:
        token = tokens[entry["principal"]]
        assert entry["token_sha256"] == hashlib.sha256(token.encode()).hexdigest()
        left = datetime.fromisoformat(entry["expires_at"]) - datetime.now(UTC)
        assert left > timedelta(days=360)
    assert {entry["principal"] for entry in accepted} == set(NAMES)


def test_tokens_survive_a_restart_and_differ_from_each_other(tmp_path: Path):
    first = write_tokens(tmp_path, NAMES)
    assert write_tokens(tmp_path, NAMES) == first
    assert len(set(first.values())) == 2


def test_each_has_a_file_that_only_its_owner_can_read(tmp_path: Path):
    tokens = write_tokens(tmp_path, NAMES)
    folder = tmp_path / "tokens"
    assert (folder / "alice").read_text() == tokens["User:alice"]
    for path in (folder, *folder.iterdir(), tokens_file(tmp_path)):
        assert path.stat().st_mode & 0o077 == 0


def test_a_port_with_a_server_is_not_free():
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_is_free_again_at_once_when_its_server_closed_a_connection():
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection((HOST, port))
        accepted, _ = server.accept()
        accepted.close()  # the closing side keeps the port in TIME_WAIT
        client.close()
    assert is_free(port)


def test_free_ports_are_distinct_and_free():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(is_free(port) for port in ports)
