"""``describe``, ``alter``, ``resolve`` and ``version`` as words; completion in a shell."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from app.client.arguments import SUBCOMMANDS
from app.client.cli import main
from tests.unit.client.conftest import Reply, Run

P = "producer_byte_rate"
QUOTAS = Reply(200, {"quotas": [{"entity": {"user": "alice"}, "values": {P: 1024}}]})
APPLIED = Reply(
    200, {"alteration_id": "a1", "outcome": "applied", "results": [], "validate_only": False}
)
UNLIMITED = {
    "value": None,
    "unit": "bytes/s",
    "scope": "per_broker",
    "source": None,
    "overridden": [],
}
RESOLVED = Reply(200, {"quotas": {P: UNLIMITED}})


@pytest.mark.parametrize(
    ("operation", "options", "reply"),
    [
        ("describe", "--names user=alice --search li", QUOTAS),
        ("describe", "--entity-type users --entity-name alice", QUOTAS),
        ("alter", f"--names user=alice --add {P}=10MiB --delete consumer_byte_rate --yes", APPLIED),
        ("alter", f"--client etl --add-config {P}=2048 --for 4h --yes", APPLIED),
        ("resolve", "--names user=alice,client-id=etl --show-overridden", RESOLVED),
    ],
)
def test_an_operation_is_a_flag_or_a_word(operation: str, options: str, reply: Reply, run: Run):
    flag, word = run(f"--{operation} {options}", reply), run(f"{operation} {options}", reply)
    assert (word.code, word.out, word.err) == (flag.code, flag.out, flag.err) == (0, *flag[1:3])
    (asked,), (expected,) = word.service.asked, flag.service.asked
    assert (asked[:2], asked[3]) == (expected[:2], expected[3])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("describe --add a=1", "unrecognized arguments: --add"),
        ("resolve --names user=a --prefix user=b", "--prefix does not belong to resolve."),
        ("resolve file.csv --names user=a", "resolve takes a FILE of identities, or --names"),
        ("resolve --what-if file.yaml", "--what-if needs a FILE"),
        ("alter --names user=a", "--alter needs --add or --delete."),
        ("alter --bootstrap-server b:9092", "is for brokers; this command asks the quota service"),
        ("completion tcsh", "argument SHELL: invalid choice"),
    ],
)
def test_a_word_refuses_what_its_flag_refuses(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words.split()) == 2
    assert sentence in capsys.readouterr().err


def test_the_version_is_a_word_too(capsys: pytest.CaptureFixture[str]):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"kafka-client-quotas {version('kafka-quota-service')}\n"
    assert main(["version", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": version("kafka-quota-service")}


def test_help_of_a_subcommand_leaves_out_what_all_of_them_take(capsys: pytest.CaptureFixture[str]):
    assert main(["audit", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 25
    assert [line for line in lines if "--cacert" in line or "--profile" in line] == []


COMPLETE = """
eval "$({program} completion bash)"
COMP_WORDS=(kafka-client-quotas {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_kafka_client_quotas
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pl", ["plan"]),
        ("--des", ["--describe"]),
        ("plan --ow", ["--owner"]),
        ("--server x audit --si", ["--since"]),
        ("export --output ''", ["text", "json", "yaml", "csv"]),
        ("completion ''", ["bash", "zsh", "fish"]),
        ("alter --boot", [""]),
    ],
)
def test_bash_completes_words_options_and_their_values(typed: str, offered: list[str]):
    program = f"{sys.executable} -m app.client.cli"
    script = COMPLETE.format(program=program, typed=typed)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    completed = ran.stdout.removesuffix("\n").split("\n")
    assert (completed[: len(offered)], ran.stderr) == (offered, "")
    assert typed.startswith("completion") or completed == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_learns_every_subcommand(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [name for name in SUBCOMMANDS if name not in script] == []
    assert "'__fish_seen_subcommand_from plan' -l owner -x" in script or shell != "fish"
