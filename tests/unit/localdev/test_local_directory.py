from pathlib import Path

import pytest

from app.localdev.errors import LocalDevError
from app.localdev.local_directory import forget, held, local_directory


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


def test_a_directory_can_be_had_again_after_its_user_left(tmp_path: Path):
    for _ in range(2):
        with held(tmp_path):
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
