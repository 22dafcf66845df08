"""What `dev` stores between runs: its directory, its state, its tokens; and free ports."""

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
from app.localdev.processes import HOST, is_free
from app.localdev.service import tokens_file, write_tokens


def test_the_directory_is_dot_local_here_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert local_directory({}) == tmp_path / ".local"
    assert local_directory({"QUOTAS_LOCAL_DIR": "other"}) == tmp_path / "other"


def test_a_directory_is_forgotten_and_one_that_never_was_is_no_error(tmp_path: Path):
    with held(tmp_path / "ours"):
        pass
    for name in ("ours", "nowhere"):
        forget(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_ours_is_not_forgotten(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(LocalDevError, match="nothing was removed"):
        forget(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_state_comes_back_and_is_private(tmp_path: Path):
    path = tmp_path / "state.json"
    assert read_state(path) == {}
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


def test_each_principal_has_a_token_for_a_year_which_only_we_can_read(tmp_path: Path):
    tokens = write_tokens(tmp_path, NAMES)
    accepted = json.loads(tokens_file(tmp_path).read_text())
    assert {entry["principal"] for entry in accepted} == set(NAMES)
    assert len(set(tokens.values())) == len(NAMES)
    for entry in accepted:
        left = datetime.fromisoformat(entry["expires_at"]) - datetime.now(UTC)
        assert left > timedelta(days=360)
    folder = tmp_path / "tokens"
    assert (folder / "alice").read_text() == tokens["User:alice"]
    for path in (folder, *folder.iterdir(), tokens_file(tmp_path)):
        assert path.stat().st_mode & 0o077 == 0


def test_a_port_is_free_again_at_once_when_its_server_closed_a_connection():
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        client = socket.create_connection((HOST, port))
        accepted, _ = server.accept()
        accepted.close()  # the closing side keeps the port in TIME_WAIT
        client.close()
    assert is_free(port)
