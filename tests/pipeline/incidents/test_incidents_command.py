"""``quota-pipeline incidents`` as people start it."""

from pathlib import Path

import pytest

from app.pipeline.main import main


@pytest.mark.parametrize("gap", ["0", "-1", "1.5", "x"])
def test_a_gap_is_a_whole_number_of_minutes(gap: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["incidents", f"--gap={gap}"])
    assert ended.value.code == 2
    assert "--gap: " in capsys.readouterr().err


def test_an_input_without_the_table_is_named_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["--input", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["incidents", *options]) == 2
    told = capsys.readouterr().err
    assert f"There is no table bucket_minute in {tmp_path}." in told
    assert "starting Spark" not in told
