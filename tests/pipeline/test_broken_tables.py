"""A broken file of a table is named, with exit code 5; results stay as they were."""

from pathlib import Path

import pytest

from app.pipeline.main import main
from app.pipeline.tables import BUCKET_MINUTE, UTILIZATION_DAILY
from tests.pipeline.conftest import Command
from tests.testkit.bucket_worlds import minute, publish


def broken(folder: Path, *, footer: bool) -> Path:
    """Publish a minute, and spoil the pages or cut off the footer of its file."""
    publish(folder, {BUCKET_MINUTE: [minute(0)]})
    (file,) = folder.rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:50] if footer else content[:4] + b"\xff" * 60 + content[64:])
    return file


@pytest.mark.parametrize("footer", [True, False])
def test_a_command_names_the_file(spark_command: Command, footer: bool, tmp_path: Path):
    file = broken(tmp_path, footer=footer)
    ended = spark_command("utilization", "--input", tmp_path, "--out", tmp_path / "out")
    assert ended.returncode == 5
    assert file.name in ended.stderr.splitlines()[-1]
    assert not (tmp_path / "out" / UTILIZATION_DAILY.name).exists()


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
