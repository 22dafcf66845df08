"""Output and questions at a terminal, and what top makes of brokers' metrics."""

import datetime as dt
import io
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from app.client.cli import main
from app.client.commands import alter, top
from app.client.output import Context
from tests.unit.client.conftest import Reply, ScriptedService, scripted_service

P = "producer_byte_rate"
ALICE = {"user": "alice"}
RESULT = {
    "entity": ALICE,
    "outcome": "applied",
    "changed": True,
    "before": {P: 1},
    "after": {P: 2},
    "error": None,
}
APPLIED = {
    "alteration_id": "a1",
    "validate_only": False,
    "outcome": "applied",
    "readable": True,
    "results": [RESULT],
}
RECORD = {
    **APPLIED,
    "principal": "User:alice",
    "client_address": "127.0.0.1",
    "reason": "INC-4711",
    "history": [{"at": "2026-11-23T00:00:00.000Z", "event": "sent", "detail": "to broker 1"}],
}
PENDING = {**RECORD, "outcome": "unknown"}
LOST = Reply(
    504,
    {"title": "The outcome is unknown", "code": "outcome-unknown", "sent_to_cluster": "maybe"},
    {"Location": "/quotas/alterations/a1"},
)
RAISED = {"change": "raised", "factor": 2, "effective_after": 2, "source": None, "more_specific": 0}
CHANGE = {
    "entity": ALICE,
    "ops": [{"key": P, "value": 2}],
    "before": {P: 1},
    "after": {P: 2},
    "impact": {"keys": {P: RAISED}},
}
PLAN = {
    "plan_id": "p1",
    "owner": "team-a",
    "prune": False,
    "expires_at": "2026-11-24T00:00:00.000Z",
    "changes": [CHANGE],
    "conflicts": [],
    "kept": [],
}
ALTER = ("--alter", "--names", "user=alice", "--add", f"{P}=2")


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(Context, "is_watched", True)


def run(service: ScriptedService, *words: str) -> int:
    return main([*words, "--server", service.url, "--color", "never"])


@pytest.mark.usefixtures("terminal")
def test_a_change_says_what_it_did_and_how_to_undo_it(capsys: pytest.CaptureFixture[str]):
    with scripted_service(Reply(200, APPLIED)) as service:
        assert run(service, *ALTER) == 0
    assert capsys.readouterr().err == (
        f"{{user=alice}}: applied\n  {P}: 1 -> 2\nTo undo it: kafka-client-quotas revert a1\n"
    )


def test_progress_is_not_printed_for_a_script(capsys: pytest.CaptureFixture[str]):
    with scripted_service(Reply(200, APPLIED)) as service:
        assert run(service, *ALTER) == 0
    assert tuple(capsys.readouterr()) == ("", "")


@pytest.mark.usefixtures("terminal")
def test_an_unknown_outcome_is_waited_for(capsys: pytest.CaptureFixture[str]):
    with scripted_service(LOST, Reply(200, PENDING), Reply(503, {}), Reply(200, RECORD)) as service:
        assert run(service, *ALTER) == 0
    assert "Alteration a1: applied\nby User:alice" in capsys.readouterr().out


def test_a_script_does_not_wait_and_show_waits_on_demand(capsys: pytest.CaptureFixture[str]):
    with scripted_service(LOST) as service:
        assert run(service, *ALTER) == 4
    with scripted_service(Reply(200, PENDING), Reply(200, RECORD)) as service:
        assert run(service, "show", "a1") == 4
        capsys.readouterr()
        assert run(service, "show", "a1", "--wait", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == RECORD


def test_the_waiting_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(alter.time, "sleep", interrupt)
    with scripted_service(Reply(200, PENDING)) as service:
        assert run(service, "show", "a1", "--wait") == 130
    assert "The alteration goes on: show a1 --wait." in capsys.readouterr().err


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("answer", "asked"), [("n\n", 1), ("y\n", 2)])
def test_apply_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, asked: int):
    file = tmp_path / "quotas.yaml"
    file.write_text(f"quotas:\n  - entity: {{user: alice}}\n    values: {{{P}: 2}}\n")
    monkeypatch.setattr(sys, "stdin", Typed(answer))
    with scripted_service(Reply(200, PLAN), Reply(200, APPLIED)) as service:
        assert run(service, "apply", str(file)) == (1 if asked == 1 else 0)
        assert len(service.asked) == asked


@pytest.mark.usefixtures("terminal")
def test_yes_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", Typed("n\n"))
    with scripted_service(Reply(200, PLAN), Reply(200, APPLIED)) as service:
        assert run(service, "apply", "--plan", "p1", "--yes") == 0


OVER = {
    "key": P,
    "shared_by": {"user": "alice", "client-id": ""},
    "share_of_minutes_over": 0.03,
    "peak": 800_000,
    "days": 14,
}


@pytest.mark.parametrize(
    ("impact", "line"),
    [
        ([OVER], "last 14 days over in 3 % of minutes, peak 800000\n"),
        ([{**OVER, "share_of_minutes_over": None}], "last 14 days perhaps over, peak 800000\n"),
        ([{**OVER, "share_of_minutes_over": 0}], ""),
        ({"reason": "no-run"}, ""),
    ],
)
@pytest.mark.usefixtures("terminal")
def test_a_check_and_a_plan_say_how_often_past_use_was_over_the_new_limit(
    impact: Any, line: str, capsys: pytest.CaptureFixture[str]
):
    line = line and f"{{user=alice}} {P}: {line}"
    checked = {**APPLIED, "validate_only": True, "outcome": "validated", "impact": impact}
    with scripted_service(Reply(200, checked)) as service:
        assert run(service, *ALTER, "--validate-only") == 0
        assert service.asked[0][3]["impact"] is True
    assert capsys.readouterr().err.endswith(f"  {P}: 1 -> 2\n{line}")
    plan = {**PLAN, "impact": impact}
    with scripted_service(Reply(200, plan), Reply(200, APPLIED)) as service:
        run(service, "apply", "--plan", "p1", "--yes")
    assert f"\n\n{line}Plan p1: 1 entity" in capsys.readouterr().err


def test_a_long_plan_is_summed_up(capsys: pytest.CaptureFixture[str]):
    plan = {**PLAN, "changes": [{**CHANGE, "entity": {"user": f"u{n}"}} for n in range(25)]}
    with scripted_service(Reply(200, plan)) as service:
        run(service, "apply", "--plan", "p1")
        short = capsys.readouterr().err
        run(service, "apply", "--plan", "p1", "--details")
        long = capsys.readouterr().err
    assert "and 5 more: --details prints all of them" in short
    assert ("{user=u24}" in short, "{user=u24}" in long) == (False, True)


@pytest.mark.usefixtures("terminal")
def test_nothing_found_says_so(capsys: pytest.CaptureFixture[str]):
    with scripted_service(Reply(200, {"quotas": []})) as service:
        assert run(service, "--describe") == 0
    assert capsys.readouterr().err.startswith("Nothing found")


@pytest.mark.usefixtures("terminal")
def test_a_caller_that_sees_only_its_own_rows_is_warned(capsys: pytest.CaptureFixture[str]):
    rows, me = {"rows": [], "next_page_token": None}, {"permissions": {"audit": False}}
    with scripted_service(Reply(200, rows), Reply(200, me)) as service:
        assert run(service, "audit", "--since", "2h", "--until", "2026-11-21") == 0
    assert "Your own changes alone are listed" in capsys.readouterr().err
    path = service.asked[0][1]
    assert "until=2026-11-21T00%3A00%3A00Z" in path
    since = dt.datetime.fromisoformat(parse_qs(path.partition("?")[2])["since"][0])
    ago = dt.datetime.now(dt.UTC) - since
    assert dt.timedelta(hours=1, minutes=50) < ago < dt.timedelta(hours=2, minutes=10)


def test_whoami_lists_what_is_allowed_and_what_is_not(capsys: pytest.CaptureFixture[str]):
    me = {
        "cluster_id": "c1",
        "principal": "User:bob",
        "authentication": "bearer-token",
        "client_address": "127.0.0.1",
        "permissions": {"describe": True, "alter": False},
        "policy": None,
    }
    rule = {"name": "team-a", "entities": [["user^=team-a-"]], "keys": {}, "defaults": False}
    may = "  may: describe\n  may not: alter\n"
    for policy, printed in (
        (None, ""),
        ([], "  the policy lets you change nothing\n"),
        ([rule], '  policy:\n    - {name: team-a, entities: [["user^=team-a-"]], keys: {}, '),
    ):
        with scripted_service(Reply(200, {**me, "policy": policy})) as service:
            assert run(service, "whoami") == 0
        assert may + printed in capsys.readouterr().out


METRICS = """\
kafka_server_quota_byte_rate{resource="Produce",user="alice",clientid="",} %s
kafka_server_quota_throttle_time{resource="Produce",user="alice",clientid="",} 12.0
kafka_server_quota_byte_rate{resource="Fetch",user="alice",clientid="",} NaN
jvm_threads_current 7
"""


def test_the_busiest_broker_of_each_client_comes_first():
    usages = [*top.usages_of(1, METRICS % 50), *top.usages_of(2, METRICS % 90)]
    assert [usage.throttle_ms for usage in usages] == [12.0, 12.0]
    for usage in usages:
        usage.limit = 100.0
    idle = top.Usage("bob", "", P, 1, 5.0)
    assert [(usage.user, usage.broker, usage.use) for usage in top.busiest_of([idle, *usages])] == [
        ("alice", 2, 0.9),
        ("bob", 1, None),
    ]


def test_top_puts_the_limits_of_the_service_beside_the_rates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(top, "_metrics", lambda _: METRICS % 90)
    with scripted_service(Reply(200, {"results": [{"quotas": {P: {"value": 100}}}]})) as service:
        assert run(service, "top", "--endpoint", "1=http://broker-1:9404") == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == list(top._HEADING)
    assert line.split() == ["alice", "-", P, "1", "90", "100", "90%", "12"]


def test_brokers_of_which_none_answers_are_unreachable(capsys: pytest.CaptureFixture[str]):
    with scripted_service(Reply(200, {"results": []})) as service:
        closed = ("--endpoint", "1=http://127.0.0.1:1")
        assert run(service, "top", *closed) == 5
    assert "No broker's metrics can be read" in capsys.readouterr().err
