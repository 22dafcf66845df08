"""No secret that was typed into an option of a job, or of the server's command, is printed."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app import main as server
from app.pipeline import main as pipeline
from app.pipeline.commands.collect import _endpoints
from app.pipeline.commands.snapshot import _token
from app.pipeline.errors import UsageError
from app.pipeline.ingest.kafka_topic import settings_of_file, topic_of
from app.pipeline.job import Job
from app.pipeline.run_records import database_of

CANARY = "canary-5ecr3t"
ADDRESS = f"postgresql://quotas:{CANARY}@db/quotas"


def typed_words(parser: argparse.ArgumentParser, word: str) -> Iterator[list[str]]:
    for action in parser._subparsers._group_actions if parser._subparsers else ():  # type: ignore[union-attr]
        for option, own in action.choices[word]._option_string_actions.items():  # type: ignore[index]
            if option not in ("-h", "--help"):
                for value in (CANARY, ADDRESS):
                    yield [f"{option}={value}"] if own.nargs == 0 else [option, value]
    yield ["--password", CANARY]
    yield [f"--password={CANARY}"]
    yield [CANARY, ADDRESS]


def assert_nothing_is_repeated(
    parser: argparse.ArgumentParser, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed in typed_words(parser, word):
        with suppress(SystemExit):
            parser.parse_args([word, *typed])
        assert CANARY not in "".join(capsys.readouterr()), typed


@pytest.mark.parametrize("job", pipeline.JOBS)
def test_no_option_of_a_job_is_repeated(job: str, capsys: pytest.CaptureFixture[str]):
    assert_nothing_is_repeated(pipeline._parser([job]), job, capsys)


@pytest.mark.parametrize("word", ["serve", "migrate", "dev", "openapi"])
def test_no_option_of_the_server_is_repeated(word: str, capsys: pytest.CaptureFixture[str]):
    assert_nothing_is_repeated(server._parser(), word, capsys)


def test_no_file_that_is_a_secret_itself_is_repeated(tmp_path: Path):
    file = tmp_path / "empty"
    file.write_text("a line\n")
    pg = argparse.Namespace(pg=CANARY)
    for read in (
        lambda: database_of(Job("run", pg)),
        lambda: database_of(Job("run", argparse.Namespace(pg=ADDRESS))),
        lambda: _token(CANARY),
        lambda: settings_of_file(CANARY),
        lambda: settings_of_file(str(file)),
        lambda: topic_of(f"kafka://alice:{CANARY}@broker"),
        lambda: _endpoints([f"1=ftp://alice:{CANARY}@broker"]),
    ):
        with pytest.raises(UsageError) as error:
            read()
        assert CANARY not in str(error.value)


def test_an_address_on_the_command_line_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="--pg takes a file that holds the address"):
        database_of(Job("run", argparse.Namespace(pg=ADDRESS)))
