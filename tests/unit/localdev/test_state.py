from pathlib import Path

from app.localdev.state import read_state, write_private, write_state


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
