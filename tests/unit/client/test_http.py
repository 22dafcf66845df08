"""Exit codes and messages when responses are lost, late, or not the service's."""

import socket
from pathlib import Path
from typing import Any

import pytest

from app.client import http
from app.client.cli import main
from tests.unit.client.conftest import Reply, ScriptedService, scripted_service

ALTER = ("--alter", "--names", "user=alice", "--add", "producer_byte_rate=1")
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


def keys(service: ScriptedService) -> set[str]:
    return {headers["Idempotency-Key"] for _, _, headers, _ in service.asked}


def test_a_lost_answer_is_asked_for_again_with_the_same_key(capsys: pytest.CaptureFixture[str]):
    with scripted_service(LOST, LOST, APPLIED) as service:
        assert main([*ALTER, "--server", service.url]) == 0
    assert len(service.asked) == 3
    assert len(keys(service)) == 1
    assert capsys.readouterr() == ("", "")


def test_an_error_after_a_lost_answer_does_not_tell_what_became_of_it(
    capsys: pytest.CaptureFixture[str],
):
    refused = problem(503, "audit-log-unavailable")
    with scripted_service(LOST, refused, refused, APPLIED) as service:
        assert main([*ALTER, "--server", service.url]) == 0
    assert (len(service.asked), len(keys(service))) == (4, 1)
    with scripted_service(LOST, refused) as service:
        assert main([*ALTER, "--server", service.url]) == 4
    assert "--idempotency-key" in capsys.readouterr().err


def test_an_answer_that_never_comes_is_4_and_names_the_key(capsys: pytest.CaptureFixture[str]):
    with scripted_service(LOST) as service:
        assert main([*ALTER, "--server", service.url]) == 4
    (key,) = keys(service)
    assert f"--idempotency-key {key}" in capsys.readouterr().err


def test_an_outcome_that_the_service_does_not_know_is_4_with_its_location(
    capsys: pytest.CaptureFixture[str],
):
    reply = problem(504, "outcome-unknown", "maybe", Location="/quotas/alterations/id")
    with scripted_service(reply) as service:
        assert main([*ALTER, "--server", service.url]) == 4
    assert f"Location: {service.url}/quotas/alterations/id" in capsys.readouterr().err
    assert len(service.asked) == 1


def test_a_replay_whose_outcome_is_unknown_is_4(capsys: pytest.CaptureFixture[str]):
    reply = Reply(200, report("unknown"), {"Location": "/quotas/alterations/id"})
    with scripted_service(reply) as service:
        assert main([*ALTER, "--server", service.url]) == 4
    assert f"Location: {service.url}/quotas/alterations/id" in capsys.readouterr().err


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
def test_each_answer_has_its_code(reply: Reply, code: int, capsys: pytest.CaptureFixture[str]):
    with scripted_service(reply) as service:
        assert main([*ALTER, "--server", service.url]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_a_busy_entity_is_tried_again(capsys: pytest.CaptureFixture[str]):
    busy = problem(409, "entity-busy", **{"Retry-After": "1"})
    with scripted_service(busy, busy, APPLIED) as service:
        assert main([*ALTER, "--server", service.url]) == 0
    assert (len(service.asked), len(keys(service))) == (3, 1)
    assert capsys.readouterr().err == ""


def test_nothing_that_listens_is_5_at_once(capsys: pytest.CaptureFixture[str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main([*ALTER, "--server", server]) == 5
    assert "Nothing was changed" in capsys.readouterr().err


def test_ctrl_c_during_an_alteration_is_130_and_names_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(http.time, "sleep", interrupt)
    with scripted_service(LOST) as service:
        assert main([*ALTER, "--server", service.url]) == 130
    (key,) = keys(service)
    assert f"--idempotency-key {key}" in capsys.readouterr().err


def test_names_in_answers_cannot_move_the_terminal(capsys: pytest.CaptureFixture[str]):
    entity = {"user": "\x1b[2J\u202eevil"}
    quotas = {"quotas": [{"entity": entity, "values": {"\x1b]0;key": 1}}]}
    denied = problem(422, "invalid-request")
    denied.body["errors"] = [{"pointer": "/\x1b[31m", "detail": "\x9b31m"}]
    for reply, name in ((Reply(200, quotas), "evil"), (denied, "31m")):
        with scripted_service(reply) as service:
            main(["--describe", "--server", service.url])
        printed = "".join(capsys.readouterr())
        assert name in printed
        assert all(character.isprintable() or character == "\n" for character in printed)


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
