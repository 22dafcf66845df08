"""What single options of the command hold."""

from importlib.metadata import version

import pytest

from app.client.arguments import parser


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "86401", "soon", ""])
def test_a_time_that_cannot_be_waited_is_refused_with_what_can(
    text: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        parser(()).parse_args(["--describe", "--timeout", text])
    assert ended.value.code == 2
    expected = f"argument --timeout: {text!r} is no number of seconds above 0 and up to 86400\n"
    assert capsys.readouterr().err.endswith(expected)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parser(()).parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kafka-client-quotas {version('kafka-quota-service')}\n"
