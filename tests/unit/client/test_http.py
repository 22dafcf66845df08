"""Exit codes and messages when responses are lost, late, or not the service's."""

import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from app.client import http
from app.client.cli import main
from app.client.commands import plan
from tests.unit.client.conftest import PLAN, Reply, Run, raising, scripted_service

ALTER = ("--alter", "--names", "user=alice", "--add", "producer_byte_rate=1", "--yes")
LOST = Reply(0)


def report(outcome: str = "applied", **members: Any) -> dict[str, Any]:
    result = {"entity": {"user": "alice"}, "outcome": outcome, "error": None, **members}
    document = {"alteration_id": "id", "outcome": outcome, "readable": True, "results": [result]}
    return {"validate_only": False, **document}


def problem(status: int, code: str, sent: str = "no", **headers: str) -> Reply:
    document = {
        "title": "A title",
        "detail": f"Detail of {code}.",
        "code": code,
        "request_id": "r1",
        "sent_to_cluster": sent,
        "retry": "never",
    }
    return Reply(status, document, headers)


APPLIED = Reply(200, report())


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.time, "sleep", lambda _: None)


def test_a_lost_answer_is_asked_for_again_with_the_same_key(run: Run):
    ran = run(ALTER, LOST, LOST, APPLIED)
    assert (ran.code, ran.out, ran.err) == (0, "", "{user=alice}: applied\n")
    assert (len(ran.service.asked), len(ran.service.keys)) == (3, 1)


def test_an_error_after_a_lost_answer_does_not_tell_what_became_of_it(run: Run):
    refused = problem(503, "audit-log-unavailable")
    ran = run(ALTER, LOST, refused, refused, APPLIED)
    assert (ran.code, len(ran.service.asked), len(ran.service.keys)) == (0, 4, 1)
    ran = run(ALTER, LOST, refused)
    assert ran.code == 4
    assert "--idempotency-key" in ran.err


def test_an_answer_that_never_comes_is_4_and_names_the_key(run: Run):
    ran = run(ALTER, LOST)
    (key,) = ran.service.keys
    assert ran.code == 4
    assert f"--idempotency-key {key}" in ran.err


@pytest.mark.parametrize(
    "reply",
    [
        problem(504, "outcome-unknown", "maybe", Location="/quotas/alterations/id"),
        Reply(200, report("unknown"), {"Location": "/quotas/alterations/id"}),
    ],
    ids=["the first time", "as a replay"],
)
def test_an_outcome_that_the_service_does_not_know_is_4_with_its_location(run: Run, reply: Reply):
    ran = run(ALTER, reply)
    assert (ran.code, len(ran.service.asked)) == (4, 1)
    assert f"Location: {ran.service.url}/quotas/alterations/id" in ran.err


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (problem(503, "outcome-not-recorded", "yes", Location="/x"), 4),
        (problem(503, "cluster-unreachable"), 5),
        (problem(502, "broker-error"), 5),
        (problem(501, "unsupported-broker-version"), 1),
        (problem(401, "unauthenticated"), 3),
        (problem(403, "policy-violation"), 3),
        (problem(412, "expectation-failed"), 1),
        (problem(422, "invalid-request"), 1),
        (Reply(207, report("partial")), 1),
        (Reply(502, "a proxy's page"), 5),
        (Reply(404, "a page"), 5),
        (problem(404, "not-found"), 1),
        (problem(409, "idempotency-key-running"), 4),
        (Reply(302, "elsewhere", {"Location": "http://127.0.0.1:1/"}), 5),
        (Reply(200, "a page"), 5),
    ],
)
def test_each_answer_has_its_code(reply: Reply, code: int, run: Run):
    ran = run(ALTER, reply)
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err


def test_a_busy_entity_is_tried_again(run: Run):
    busy = problem(409, "entity-busy", **{"Retry-After": "1"})
    ran = run(ALTER, busy, busy, APPLIED)
    assert (ran.code, ran.err) == (0, "{user=alice}: applied\n")
    assert (len(ran.service.asked), len(ran.service.keys)) == (3, 1)


def test_nothing_that_listens_is_5_at_once(capsys: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main([*ALTER, "--server", server]) == 5
    assert "Nothing was changed" in capsys.readouterr().err


def test_ctrl_c_during_an_alteration_is_130_and_names_the_key(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http.time, "sleep", raising(KeyboardInterrupt))
    ran = run(ALTER, LOST)
    (key,) = ran.service.keys
    assert ran.code == 130
    typed = shlex.join([*ALTER, "--server", ran.service.url, "--color", "never"])
    assert f"\n  kafka-client-quotas {typed} --idempotency-key {key}\n" in ran.err


def test_ctrl_c_in_a_chunk_of_a_document_says_how_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http.time, "sleep", raising(KeyboardInterrupt))
    monkeypatch.setattr(plan, "_MOST_KEYS", 1)
    file = tmp_path / "two.csv"
    file.write_text("user,producer_byte_rate\nalice,2048\nbob,2048\n")
    plans = [Reply(200, PLAN), Reply(200, PLAN)]
    ran = run(f"apply {file} --yes --reason x", *plans, APPLIED, LOST)
    key = next(headers["Idempotency-Key"] for *_, headers, _ in ran.service.asked[3:])
    assert ran.code == 130
    lines = ran.err.splitlines()
    assert "Chunk 1 of 2: Applied: alteration id." in lines
    server = f"--server {ran.service.url}"
    assert f"  kafka-client-quotas apply {file} --yes --reason x {server} --color never" in lines
    learning = f"apply --plan p1 --yes --reason x {server} --idempotency-key {key}"
    assert f"  kafka-client-quotas {learning}" in lines


def test_names_in_answers_cannot_move_the_terminal(run: Run):
    entity = {"user": "\x1b[2J\u202eevil"}
    quotas = {"quotas": [{"entity": entity, "values": {"\x1b]0;key": 1}}]}
    denied = problem(422, "invalid-request")
    denied.body["errors"] = [{"pointer": "/\x1b[31m", "detail": "\x9b31m"}]
    for reply, name in ((Reply(200, quotas), "evil"), (denied, "31m")):
        ran = run("--describe", reply)
        assert name in ran.out + ran.err
        assert (ran.out + ran.err).replace("\n", "").isprintable()


def test_a_profile_names_service_and_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "kafka-client-quotas"
    folder.mkdir()
    (folder / "token").write_text("secret\n")
    (tmp_path / "password").write_text("p\u00e4ss\n")
    with scripted_service(Reply(200, {"quotas": []})) as service:
        (folder / "config.toml").write_text(
            f'profile = "a"\n[profiles.a]\nserver = "{service.url}"\ntoken_file = "token"\n'
            f'[profiles.b]\nserver = "http://127.0.0.1:1"\ntoken_file = "none"\n'
        )
        assert main(["--describe"]) == 0
        assert main(["--describe", "--profile", "b"]) == 2
        monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_PROFILE", "b")
        monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_SERVER", service.url)
        words = ["--describe", "--user", "al", "--password-file", str(tmp_path / "password")]
        assert main(words) == 0
    sent = [headers.get("Authorization") for _, _, headers, _ in service.asked]
    assert sent == ["Bearer secret", "Basic YWw6cMOkc3M="]
    assert "secret" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("text", ["x = 1", "[profiles.a]\nsrver = 'x'", "[", "profile = 1"])
def test_a_profile_that_cannot_be_read_is_reported(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "kafka-client-quotas"
    folder.mkdir()
    (folder / "config.toml").write_text(text)
    assert main(["--describe"]) == 2
    assert str(folder / "config.toml") in capsys.readouterr().err
