"""The server's command."""

from importlib.metadata import version

import pytest

from app.main import main


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kafka-quota-service {version('kafka-quota-service')}\n"
