"""``quota-pipeline resolve`` as a person runs it."""

import json
from pathlib import Path

import pytest

from app.pipeline.main import main


def test_a_dry_run_says_what_it_would_do(given: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--input", str(given), "--quotas", str(given), "--out", "/never", "--dry-run"]
    assert main(["resolve", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["would_read"] == [
        str(given / "observation_minute"),
        str(given / "quota_version"),
    ]
    assert report["would_write"] == ["/never/bucket_minute", "/never/dim_bucket"]


def test_missing_quotas_are_named(given: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["resolve", "--input", str(given), "--out", "/never"]) == 2
    assert "--quotas is missing" in capsys.readouterr().err
