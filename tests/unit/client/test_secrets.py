"""No secret that was typed into any option, or into one that does not exist, is ever printed."""

import argparse
from collections.abc import Iterator

import pytest

from app.client.arguments import SUBCOMMANDS, parser
from app.client.cli import main
from app.client.entities import read_changes
from app.client.errors import UsageError
from app.command_line import redact
from tests.unit.client.conftest import Reply, Run, scripted_service

CANARY = "canary-5ecr3t"
SHAPES = (
    CANARY,
    f"postgresql://quotas:{CANARY}@db/quotas",
    f"SCRAM-SHA-512=[password={CANARY},iterations=4096]",
)
OPERATIONS = ("--describe", "--resolve", "--alter")
NAMES = {"--names", "--name", "--prefix", "--defaults", "--entity-name"}
"""Names are no secrets: what is wrong with them is told with them."""


def commands() -> Iterator[tuple[list[str], str, argparse.Action]]:
    for word in (*OPERATIONS, *SUBCOMMANDS):
        whole = parser((word,))
        own: argparse.ArgumentParser = (whole.subcommands or {}).get(word, whole)
        for option, action in own._option_string_actions.items():
            if option not in ("--help", "-h", "--version", *NAMES):
                yield [word], option, action


def test_no_option_repeats_its_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LANGUAGE", "C")  # argparse looks for files of translations otherwise
    count = 0
    with scripted_service(Reply(422, {"title": "Refused", "code": "invalid-request"})) as service:
        for words, option, action in commands():
            for shape in SHAPES if action.nargs != 0 else [CANARY]:
                typed = [f"{option}={shape}"] if action.nargs == 0 else [option, shape]
                code = main(["--server", service.url, *words, *typed])
                printed = "".join(capsys.readouterr())
                assert (code in (0, 1, 2), CANARY in printed) == (True, False), (words, typed)
                count += 1
    assert count > 300


@pytest.mark.parametrize(
    "typed",
    [
        ["--password", CANARY],
        [f"--password={CANARY}"],
        ["--describe", "--pasword-file", CANARY],
        ["--describe", CANARY],
        ["plan", "quotas.yaml", CANARY],
        ["plan", "quotas.yaml", "--token", CANARY],
        ["export", "--prune", CANARY],
        ["--output", "json", "--describe", f"--token={CANARY}"],
        ["--server", f"http://alice:{CANARY}@127.0.0.1:1", "--describe"],
        ["--server", f"http://127.0.0.1:1/?token={CANARY}", "--describe"],
    ],
)
def test_no_unknown_option_and_no_address_repeats_it(
    typed: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(typed) in (2, 5)
    assert CANARY not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"SCRAM-SHA-256=[iterations=8192,password={CANARY}]", "SCRAM credentials are no quotas"),
        (f"producer_byte_rat=1MB,password={CANARY}", "producer_byte_rat is no quota key. Did you"),
        (f"password={CANARY}", "password is no quota key. Those are producer_byte_rate"),
        (f"producer_byte_rate=1,{CANARY}", "--add: item 2 is not KEY=VALUE."),
    ],
)
def test_the_value_of_what_is_no_quota_key_is_not_repeated(text: str, sentence: str):
    with pytest.raises(UsageError, match=sentence.replace(".", r"\.")) as error:
        read_changes([text], [])
    assert CANARY not in str(error.value)


def test_a_number_for_an_unknown_key_is_not_repeated_either(run: Run):
    errors = [{"pointer": "/alterations/0/ops/0/key", "detail": "Unknown quota key."}]
    ran = run("--alter --names user=a --add pin=48151623", Reply(422, {"errors": errors}))
    assert "--add pin=… (/alterations/0/ops/0/key)" in ran.err
    assert "48151623" not in ran.err


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("http://a:b@host/x", "http://…@host/x"),
        ("password=x sasl.jaas.password = y", "password=… sasl.jaas.password = …"),
        ("fs.s3a.secret.key=abc,next", "fs.s3a.secret.key=…,next"),
        ("sc://host:1/;token=abc;user_id=x", "sc://host:1/;token=…;user_id=x"),
        ("producer_byte_rate=5", "producer_byte_rate=5"),
        ("http://host/a@b", "http://host/a@b"),
    ],
)
def test_credentials_are_taken_out_of_a_text(text: str, redacted: str):
    assert redact(text) == redacted
