"""Other clients: how they are installed or left out, started, and checked."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

import benchmarks.competitors
from benchmarks.competitors.installing import (
    INSTALLERS,
    NotInstalledError,
    installed,
    pinned_module,
)
from benchmarks.competitors.peers import (
    Peer,
    Peers,
    Start,
    alter_job,
    read_result,
    run_to_end,
)
from benchmarks.measures import BenchmarkError
from benchmarks.stack import Progress
from benchmarks.wire import KEYS, Entities

SOURCES = Path(benchmarks.competitors.__file__).parent

ECHO = """
import json, sys
for line in sys.stdin:
    job = json.loads(line)
    print(json.dumps({"ms": 2.5, "entities": len(job["entities"])}), flush=True)
"""


def script(text: str) -> Peer:
    return Peer("a peer", "1", [sys.executable, "-c", text], os.environ)


def refused(reason: str, message: str = "") -> Peer:
    raise NotInstalledError(reason, message)


def test_a_job_names_every_entity_and_every_key():
    assert json.loads(alter_job(Entities("a", 2, KEYS[:1]), 7)) == {
        "do": "alter",
        "entities": [
            {"user": "a-user-00000", "client-id": "a-client-00000"},
            {"user": "a-user-00001", "client-id": "a-client-00001"},
        ],
        "values": {"producer_byte_rate": 7},
    }


def test_a_result_is_read():
    assert read_result("a", '{"ms": 1.5, "entities": 3}\n') == (1.5, 3)


def test_a_peer_that_failed_is_no_figure(subtests: pytest.Subtests):
    for line, message in [
        ("", "it ended"),
        ('{"error": "POLICY_VIOLATION"}\n', "POLICY_VIOLATION"),
        ("npm warn something\n", "npm warn something"),
        ('{"ms": null, "entities": 1}\n', "null"),
        ("[]", "a has failed"),
    ]:
        refusal = pytest.raises(BenchmarkError, match=message)
        with subtests.test(line=line, message=message), refusal:
            read_result("a", line)


async def test_a_warm_peer_does_one_job_after_the_other():
    peers = Peers([script(ECHO)])
    with peers.warm("127.0.0.1:1") as (peer,):
        assert read_result("a", await peer.ask(alter_job(Entities("a", 2), 1))) == (2.5, 2)
        assert read_result("a", await peer.ask(alter_job(Entities("a", 3000), 2))) == (2.5, 3000)


async def test_a_warm_peer_that_ends_answers_nothing():
    with Peers([script("input(); raise SystemExit(1)")]).warm("127.0.0.1:1") as (peer,):
        assert await peer.ask("{}") == ""


def test_a_process_reads_its_input_and_its_output_is_returned():
    echo = Start([sys.executable, "-c", "print(input()[::-1])"], os.environ, "abc\n")
    assert run_to_end(echo) == "cba\n"


@pytest.mark.parametrize(
    "command", [[sys.executable, "-c", "raise SystemExit('no broker')"], ["no-such-program"]]
)
def test_a_process_that_fails_ends_the_run(command: list[str]):
    with pytest.raises(BenchmarkError, match=r"no broker|no-such-program did not run"):
        run_to_end(Start(command, os.environ))


def test_what_cannot_be_installed_is_left_out_with_a_word(capsys: pytest.CaptureFixture[str]):
    installers = {
        "a": lambda _: script(ECHO),
        "b": lambda _: refused("`npm ci` failed", "the output of npm"),
        "c": lambda _: refused("nobody wants it"),
    }
    peers = installed(Progress(), ["a", "b"], installers)
    assert [peer.name for peer in peers.present] == ["a peer"]
    assert peers.left_out["b"] == "`npm ci` failed"
    assert "c" not in peers.left_out
    printed = capsys.readouterr().err
    assert "the output of npm" in printed
    assert "without b: `npm ci` failed" in printed


def test_without_go_and_node_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    installers = {name: INSTALLERS[name] for name in ("kadm", "node", "kafka-python")}
    peers = installed(Progress(), installers, installers)
    assert [peer.name for peer in peers.present] == ["kafka-python"]
    assert peers.left_out == {
        "curl": "there is no `curl` on the PATH",
        "kadm": "there is no `go` on the PATH",
        "node": "there is no `node` on the PATH",
    }
    assert not peers.has_curl
    assert Peers().has_curl


def test_every_module_is_pinned_and_no_lock_file_says_where_from():
    module = SOURCES / "go" / "go.mod"
    for path in ("github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kadm"):
        version = pinned_module(module, path)
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert f"{path} v{version} h1:" in (SOURCES / "go" / "go.sum").read_text()
    lock = json.loads((SOURCES / "node" / "package-lock.json").read_text())
    wanted = json.loads((SOURCES / "node" / "package.json").read_text())["dependencies"]
    for name, version in wanted.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    for name, package in lock["packages"].items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")
