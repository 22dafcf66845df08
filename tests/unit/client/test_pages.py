"""The pages about the command say what it takes."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.client.arguments import parser

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(?:sh|console|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WORKFLOW = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", "docs/command-line.md", "docs/ci.md", "docs/coming-from.md"]
END_OF_COMMAND = re.compile(r"\s(?:\||>|>>|&&|\|\||;)(?:\s|$)|(?<!json)\)$|(?<!json)\)\"")


def commands() -> Iterator[str]:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
        for block in BLOCK.findall(text):
            for found in re.findall(r"(?:^|[\s(])kafka-client-quotas (?![a-z-]+:|:)(.*)", block):
                if "<Tab>" not in found:
                    yield END_OF_COMMAND.split(found)[0]


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_shown_can_be_parsed(command: str):
    options = command.replace("$OPTIONS", "--owner team-a --prune").replace("…", "x")
    words = shlex.split(options, comments=True)
    parser(tuple(words)).parse_args(words)


def test_there_are_commands():
    assert len(set(commands())) > 25


def test_the_example_for_continuous_integration_is_a_workflow(tmp_path: Path):
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (workflow,) = WORKFLOW.findall(page)
    file = tmp_path / "quotas.yaml"
    file.write_text(workflow)
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
    ]
    ran = subprocess.run([*check, file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
