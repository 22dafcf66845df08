"""What commands print when nobody takes it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.pipeline.main import main

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "kafka-client-quotas": ("app.client.cli", 2),
    "kafka-quota-service": ("app.main", 1),
    "quota-pipeline": ("app.pipeline.main", 5),
}


def run(
    module: str, redirection: str, *, unbuffered: str = ""
) -> "subprocess.CompletedProcess[str]":
    line = f"{sys.executable} -m {module} --help {redirection}"
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environ, cwd=ROOT, check=False
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_output_on_a_full_disk_is_one_sentence_and_an_exit_code(program: str, unbuffered: str):
    module, code = PROGRAMS[program]
    ended = run(module, "> /dev/full", unbuffered=unbuffered)
    sentences = "No space left on device. What was asked for may be done."
    assert ended.stderr == f"{program}: The output cannot be written: {sentences}\n"
    assert ended.returncode == code


@pytest.mark.parametrize("program", PROGRAMS)
def test_where_the_sentence_cannot_be_written_either_the_exit_code_says_it(program: str):
    module, code = PROGRAMS[program]
    ended = run(module, "> /dev/full 2> /dev/full")
    assert ended.returncode == code


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run --from soon", "--from: … is not a time such as 2026-11-21T08:00:00Z or 2026-11-21."),
        ("plot --plot s3://bucket", "--plot: … must be a folder of this machine: mount it."),
    ],
)
def test_a_wrong_option_is_one_line_and_not_a_page_of_options(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    job = f"quota-pipeline {words.split(maxsplit=1)[0]}"
    help_for_all = f"`{job} --help` lists what it takes."
    assert capsys.readouterr().err == f"{job}: argument {sentence} {help_for_all}\n"


@pytest.mark.parametrize(
    ("words", "meant"), [("ingset --cluster c", "ingest"), ("run --fail-on finding", "findings")]
)
def test_a_misspelt_word_brings_the_one_that_was_meant(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"). Did you mean {meant}?\n")
