"""The common options: which times and masters they take, and which period."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from app.pipeline.commands.ingest import run
from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.main import main, print_report
from app.pipeline.options import add_common_options
from tests.pipeline.conftest import Command
from tests.pipeline.ingest.points import Point, write_csv


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"quota-pipeline {version('kafka-quota-service')}\n"


def options_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_common_options(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-29", datetime(2026, 3, 29, tzinfo=UTC)),
        ("2026-03-29T02:30:00", datetime(2026, 3, 29, 2, 30, tzinfo=UTC)),
        ("2026-03-29T02:30:00+02:00", datetime(2026, 3, 29, 0, 30, tzinfo=UTC)),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, time: datetime):
    assert options_of("--from", text).since == time


@pytest.mark.parametrize(
    "text", ["soon", "2026-02-30", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-14:00"]
)
def test_what_is_no_time_is_wrong_usage(text: str):
    with pytest.raises(argparse.ArgumentError, match="is not a time such as"):
        options_of("--to", text)


@pytest.mark.parametrize("until", ["2026-11-21", "2026-11-20"])
def test_a_period_that_ends_before_it_begins_is_wrong_usage(until: str, tmp_path: Path):
    options = options_of("--from", "2026-11-21", "--to", until, "--format", "csv")
    options.input, options.map = [str(write_csv([Point()], tmp_path))], None
    with pytest.raises(UsageError, match="--to must be later than --from"):
        run(Job("ingest", options))


FOLDERS = ("--input", "--quotas", "--out")
OF_FOLDERS = {
    "resolve": FOLDERS,
    "utilization": ("--input", "--out"),
    "incidents": ("--input", "--out"),
    "plot": ("--input",),
    "doctor": ("--input",),
    "history": ("--input", "--out"),
    "ingest": ("--out",),
    "run": ("--quotas", "--out"),
    "snapshot": ("--out",),
    "synth": ("--out",),
    "collect": ("--out",),
}


@pytest.mark.parametrize(
    ("job", "option"), [(job, option) for job, named in OF_FOLDERS.items() for option in named]
)
def test_a_folder_is_named_by_no_pattern(command: Command, job: str, option: str, tmp_path: Path):
    for name in ("{../,}x", "a*", "a?", "[ab]", "a\\b"):
        named = {each: str(tmp_path) for each in OF_FOLDERS[job]}
        named[option] = f"{tmp_path}/{name}"
        done = command(job, *(word for pair in named.items() for word in pair))
        assert done.returncode == 2
        assert f"{option} {tmp_path}/{name} must be one folder" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[2, 3]", "spark://a:7077", "k8s://b", "yarn"]
)
def test_a_master_is_one_that_spark_knows(master: str):
    assert options_of("--master", master).master == master


@pytest.mark.parametrize("master", ["", "nonsense", "local[two]", "spark://", "yarn-cluster"])
def test_another_master_is_wrong_usage(master: str):
    with pytest.raises(argparse.ArgumentError, match=r"is not local, local\[N\]"):
        options_of("--master", master)


ENDPOINT = ("--endpoint", "1=http://a")
SERVER, TOKEN = ("--server", "http://x"), ("--token-file", "x")
POINTS = ("--format", "csv", "--input", "{folder}/points.csv")
WRONG: Mapping[str, Sequence[tuple[tuple[str, ...], str]]] = {
    "collect": [
        ((), "--endpoint is missing"),
        (("--endpoint", "http://x"), "--endpoint: write the broker's id"),
        (("--endpoint", "1=ftp://x"), "--endpoint: write the broker's id"),
        ((*ENDPOINT, "--endpoint", "1=http://b"), "names broker 1 twice"),
        ((*ENDPOINT, "--interval", "0"), "is not a number from 0.001 to 1e+09"),
        ((*ENDPOINT, "--duration", "nan"), "is not a number from 0.001 to 1e+09"),
    ],
    "snapshot": [
        (SERVER, "--token-file is missing"),
        (TOKEN, "--server is missing"),
        ((*SERVER, "--token-file", "nowhere"), "The file of --token-file cannot be read"),
    ],
    "ingest": [
        (
            ("--format", "xml", "--input", "{folder}"),
            "--format is unknown: it is one of parquet, prom-json",
        )
    ],
    "resolve": [
        (
            ("--input", "{folder}", "--quotas", "{folder}"),
            "There is no table series in {folder}.",
        )
    ],
    "utilization": [(("--input", "{folder}"), "There is no table rate_minute in {folder}:")],
    "incidents": [(("--input", "{folder}"), "There is no table bucket_hour in {folder}.")],
    "export": [
        (("--input", "{folder}"), "--table is missing: it is one of observation_minute, bucket_m"),
        (("--table", "bucket_minute"), "--input is missing: name the folder"),
        (
            ("--table", "bucket_minute", "--input", "{folder}", "--format", "xml"),
            "--format xml is unknown",
        ),
        (
            ("--table", "utilization_hist", "--input", "{folder}"),
            "There is no table utilization_daily in {folder}.",
        ),
    ],
    "run": [
        (POINTS, "--quotas is missing"),
        ((*POINTS, "--quotas", "{folder}"), "There is no table quota_version in {folder}."),
    ],
    "plot": [(("--input", "{folder}"), "There is no table utilization_daily in {folder}")],
}
"""Options of jobs, and what is answered to them; all runs get `--out`."""


@pytest.mark.parametrize("job", WRONG)
def test_wrong_usage_is_named(job: str, spark_command: Command, tmp_path: Path):
    write_csv([Point()], tmp_path)
    for options, sentence in WRONG[job]:
        words = [word.format(folder=tmp_path) for word in options]
        done = spark_command(job, *words, "--out", tmp_path / "out")
        assert done.returncode == 2, done.stderr
        assert sentence.format(folder=tmp_path) in done.stderr


def test_the_report_for_people_is_yaml(capsys: pytest.CaptureFixture[str]):
    report = {"job": "run", "run_id": "1e10", "steps": {"ingest": {"rows_in": 3, "rows_out": 2}}}
    print_report({**report, "offsets": [{"topic": "t", "from": 7}]}, ["Open: none"], as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "job: run",
        "run_id: 1e10",
        "steps:",
        "  ingest: {rows_in: 3, rows_out: 2}",
        "offsets:",
        "- {topic: t, from: 7}",
        "Open: none",
    ]
