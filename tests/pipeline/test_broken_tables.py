"""A broken file of a table is named, with exit code 5; results stay as they were."""

from pathlib import Path

import pytest

from app.pipeline.errors import InfrastructureError
from app.pipeline.main import main
from app.pipeline.sources.buckets import Scope
from app.pipeline.sources.table_pieces import pieces_of, read_columns
from app.pipeline.tables import BUCKET_MINUTE, UTILIZATION_DAILY
from tests.testkit.bucket_worlds import minute, publish


def broken(folder: Path, *, footer: bool) -> Path:
    """Publish a minute, and spoil the pages or cut off the footer of its file."""
    publish(folder, {BUCKET_MINUTE: [minute(0)]})
    (file,) = folder.rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:50] if footer else content[:4] + b"\xff" * 60 + content[64:])
    return file


@pytest.mark.parametrize("footer", [True, False])
def test_a_task_names_the_file(footer: bool, tmp_path: Path):
    file = broken(tmp_path, footer=footer)
    with pytest.raises(InfrastructureError, match=f"{file} cannot be read .*; run the job again"):
        read(tmp_path)


def read(folder: Path) -> None:
    for piece in pieces_of([folder], BUCKET_MINUTE, Scope()):
        read_columns(piece, BUCKET_MINUTE, ("ts", "key"), Scope())


def test_a_command_without_spark_fails_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / UTILIZATION_DAILY.name / "cluster_id=a" / "dt=2026-11-21").mkdir(parents=True)
    next(tmp_path.rglob("dt=*")).joinpath("a.parquet").write_bytes(b"PAR1")
    command = ["plot", "--input", str(tmp_path), "--out", str(tmp_path / "pictures")]
    assert main(command) == 5
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("quota-pipeline plot: ")
    assert "a.parquet" in last
