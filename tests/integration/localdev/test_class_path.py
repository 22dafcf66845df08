import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from jgo.config import GlobalSettings

from app.localdev.jars import class_path
from tests.testkit.event_loops import Silent, served


class Repository(Silent, SimpleHTTPRequestHandler):
    """The jars of this machine."""


@pytest.fixture
def mirror() -> Iterator[str]:
    class_path(tools=True)
    with served(partial(Repository, directory=str(GlobalSettings.load().repo_cache))) as address:
        yield address


def test_two_processes_that_fetch_at_once_both_get_every_jar(mirror: str, tmp_path: Path):
    configuration = tmp_path / "jgo.conf"
    configuration.write_text(f"[repositories]\nmirror = {mirror}\n")
    environ = {
        **os.environ,
        "M2_REPO": str(tmp_path / "repository"),
        "JGO_CONFIG_FILE": str(configuration),
    }
    program = "from app.localdev.jars import class_path; print(len(class_path(tools=True)))"
    command = [sys.executable, "-c", program]
    both = [
        subprocess.Popen(
            command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [out for out, _ in answers] == ["47\n", "47\n"]
    assert sorted("Fetched them" in progress for _, progress in answers) == [False, True]


def test_a_warm_repository_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class_path()
    configuration = tmp_path / "jgo.conf"
    configuration.write_text("[repositories]\nmirror = http://127.0.0.1:9\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))
    assert len(class_path()) == 46
