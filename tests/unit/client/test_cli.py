"""The command: its options, the pages about them, and standard output that is full or closed."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from app.client.arguments import parser
from app.client.cli import main
from app.client.errors import UsageError

ALTER = ("--alter", "--names", "user=alice", "--add", "producer_byte_rate=1")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "86401", "soon", ""])
def test_a_time_that_cannot_be_waited_is_refused_with_what_can(text: str):
    refusal = "is no number of seconds above 0 and up to 86400$"
    with pytest.raises(UsageError, match=refusal):
        parser(()).parse_args(["--describe", "--timeout", text])


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kafka-client-quotas {version('kafka-quota-service')}\n"


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


def test_every_documented_command_can_be_parsed(subtests: pytest.Subtests):
    found = sorted(set(commands()))
    assert len(found) > 25
    for command in found:
        with subtests.test(command=command):
            options = command.replace("$OPTIONS", "--owner team-a").replace("$metrics", "http://x")
            words = shlex.split(options, comments=True)
            parser(tuple(words)).parse_args(words)


def schema_faults(schema: str, file: Path) -> str:
    from check_jsonschema import main as check  # noqa: PLC0415 - takes long to import
    from click.testing import CliRunner  # noqa: PLC0415

    ran = CliRunner().invoke(check, ["--builtin-schema", f"vendor.{schema}", str(file)])
    return "" if ran.exit_code == 0 else ran.output


def test_the_example_for_continuous_integration_is_a_workflow_with_the_inputs_of_the_action(
    tmp_path: Path,
):
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (workflow,) = WORKFLOW.findall(page)
    file = tmp_path / "quotas.yaml"
    file.write_text(workflow)
    assert schema_faults("github-workflows", file) == ""
    inputs = yaml.safe_load((ROOT / "deploy" / "ci" / "action.yml").read_text())["inputs"]
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    assert job["steps"][-1]["with"].keys() == inputs.keys()


@pytest.mark.parametrize(
    ("schema", "file"), [("github-actions", "action.yml"), ("gitlab-ci", "gitlab.yml")]
)
def test_what_pipelines_include_fits_its_schema(schema: str, file: str):
    assert schema_faults(schema, ROOT / "deploy" / "ci" / file) == ""


def test_the_script_of_pipelines_gets_the_fields_that_it_reads():
    folder = ROOT / "deploy" / "ci"
    read = set(re.findall(r"KAFKA_[A-Z_]+", (folder / "kafka-quotas-ci.sh").read_text()))
    read -= {"KAFKA_CLIENT_QUOTAS_TOKEN_FILE"}
    for file in ("action.yml", "gitlab.yml"):
        assert read <= set(re.findall(r"KAFKA_[A-Z_]+", (folder / file).read_text())), file


QUOTA = "'[{user: a, producer_byte_rate: 1}]'"
COMMAND = f"{sys.executable} -m app.client.cli import <(echo {QUOTA})"
USAGE = f"{sys.executable} -m app.client.cli --describe --alter"


def run_in_shell(line: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent"}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environ, check=False
    )


def test_output_that_cannot_be_written_is_one_sentence():
    ended = run_in_shell(f"{COMMAND} > /dev/full")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith(
        "kafka-client-quotas: The output cannot be written: No space left on device."
    )


@pytest.mark.parametrize(("line", "code"), [(f"{COMMAND} >&-", 0), (f"{USAGE} 2>&-", 2)])
def test_a_closed_stream_is_one_that_nobody_reads(line: str, code: int):
    ended = run_in_shell(line)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


@pytest.mark.parametrize("words", ["plan -", "import -", "apply -", "resolve -"])
def test_standard_input_that_is_closed_is_one_sentence(words: str):
    ended = run_in_shell(f"{sys.executable} -m app.client.cli {words} <&-")
    sentence = "kafka-client-quotas: Standard input is closed, so - cannot be read.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", sentence)


@pytest.mark.parametrize("words", ["--describe --alter", "plan no-such-file --output json"])
def test_an_exit_code_is_that_of_the_fault_where_standard_error_is_full(words: str):
    ended = run_in_shell(f"{sys.executable} -m app.client.cli {words} 2>/dev/full")
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--describe", "--alter"),
        ("--describe", "plan", "x"),
        ("--describe", "--names", "group=a"),
        ("--describe", "--names", "user=a", "--defaults", "user"),
        ("--describe", "--add", "producer_byte_rate=1"),
        ("--describe", "--bootstrap-server", "localhost:9092"),
        ("--describe", "--user", "alice", "--client-id", "etl"),
        ("--resolve", "--names", "client-id=a"),
        ("--resolve", "--defaults", "user"),
        ("--resolve", "--names", "user=a", "--prefix", "user=b"),
        ("--resolve", "--names", "user=a", "--search", "b"),
        ("--alter", "--names", "user=a"),
        ("--alter", "--add", "producer_byte_rate=1"),
        (*ALTER, "--show-overridden"),
        ("--descr",),
        ("plan",),
        ("plan", "/nonexistent/file"),
        ("apply",),
        ("apply", "x", "--plan", "y"),
        ("--describe", "--server", "localhost:8080"),
        ("--describe", "--server", "http://[::1"),
        ("--describe", "--token-file", "/nonexistent/token"),
        ("--describe", "--token-file", "x", "--user", "y"),
        ("--describe", "--password-file", "x"),
        ("--describe", "--profile", "none"),
        ("--describe", "--timeout", "0"),
        ("audit", "--limit", "-1"),
        ("audit", "--since", "tomorrow"),
        ("audit", "--since", "999999w"),
        ("audit", "--since", "0001-01-01T00:00:00+05:00"),
        ("--describe", "--entity-type", "topics"),
        ("--describe", "--entity-name", "alice"),
        ("--alter", "--entity-type", "users", "--add-config", "producer_byte_rate=1"),
        ("top",),
        ("top", "--endpoint", "broker-1:9404"),
        (*ALTER, "--output", "csv"),
        (*ALTER, "--idempotency-key", "\u00e9"),
        ("--describe", "--names", "user=\udcff"),
        ("--describe", "--server", "http://alice:secret@127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2_and_says_why(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert main(list(words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("kafka-client-quotas: ")
    assert "secret" not in printed.err
    assert "Errno" not in printed.err


@pytest.mark.parametrize("word", ["--help", "plan --help", "import --help", "lint --help"])
def test_help_is_no_error(word: str, capsys: pytest.CaptureFixture[str]):
    assert main(word.split()) == 0
    assert "--server" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--descirbe", "--describe"),
        ("plna quotas.yaml", "plan"),
        ("plan quotas.yaml --onwer team-a", "--owner"),
        ("--describe --names usre=alice", "user"),
        ("--describe --entity-type user", "users"),
        ("--describe --usr alice", "--user"),
    ],
)
def test_a_misspelt_word_brings_the_one_that_was_meant(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words.split()) == 2
    assert f"Did you mean {meant}?" in capsys.readouterr().err


def test_no_word_is_suggested_that_is_far_from_what_was_typed(capsys: pytest.CaptureFixture[str]):
    assert main(["--describe", "--zzz"]) == 2
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzz\n")


def test_a_password_is_asked_for_with_what_names_the_user_of_a_quota(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("getpass.getpass", lambda _: "secret")
    assert main(["--describe", "--user", "alice", "--server", "http://127.0.0.1:1"]) == 5
    assert "--names user=NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--describe --server http://127.0.0.1:1 --output json", "unreachable"),
        ("plan --output json", "usage"),
        ("plan --output=json", "usage"),
    ],
)
def test_errors_are_json_where_the_output_is(
    words: str, code: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words.split()) == {"unreachable": 5, "usage": 2}[code]
    assert json.loads(capsys.readouterr().err)["code"] == code
