"""``quota-pipeline incidents`` as people start it."""

import pytest

from app.pipeline.main import main


@pytest.mark.parametrize("gap", ["0", "-1", "1.5", "x"])
def test_a_gap_is_a_whole_number_of_minutes(gap: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["incidents", f"--gap={gap}"])
    assert ended.value.code == 2
    assert "--gap: " in capsys.readouterr().err
