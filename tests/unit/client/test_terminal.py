"""Output and questions at a terminal, and what top makes of brokers' metrics."""

import datetime as dt
import io
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from app.client.commands import alter, top
from app.client.output import Context
from app.domain.broker_metrics import Sample, quota_samples
from tests.testkit.http import serving
from tests.unit.client.conftest import PLAN, Reply, Run, raising

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
DONE = f"{{user=alice}}: applied\n  {P}: 1 -> 2 (× 2)\nTo undo it: kafka-client-quotas revert a1\n"
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
ALTER = f"--alter --names user=alice --add {P}=2 --yes"


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(Context, "is_watched", True)


@pytest.mark.usefixtures("terminal")
def test_a_change_says_what_it_did_and_how_to_undo_it(run: Run):
    ran = run(ALTER, Reply(200, APPLIED))
    assert (ran.code, ran.err) == (0, DONE)


@pytest.mark.usefixtures("terminal")
def test_what_changed_nothing_needs_no_undoing(run: Run):
    same = {**RESULT, "changed": False, "after": {P: 1}}
    ran = run(ALTER, Reply(200, {**APPLIED, "results": [same]}))
    assert ran.err == "{user=alice}: applied\n  nothing differs\n"


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("source", "value", "words"),
    [
        ({"entity": {"user": None}}, 2**20, "now 1 MiB/s of {user=<default>} applies"),
        (None, None, "no limit applies now"),
    ],
)
def test_a_removal_says_what_applies_then(run: Run, source: Any, value: int | None, words: str):
    removed = {**RESULT, "after": {}}
    resolved = {"results": [{"quotas": {P: {"value": value, "source": source}}}]}
    answers = Reply(200, {**APPLIED, "results": [removed]}), Reply(200, resolved)
    ran = run(f"alter --names user=alice --delete {P}", *answers)
    assert (ran.code, ran.err.splitlines()[1:3]) == (0, [f"  {P}: 1 -> unset", f"  {P}: {words}"])


@pytest.mark.usefixtures("terminal")
def test_an_export_says_where_it_is(run: Run, tmp_path: Path):
    file = tmp_path / "quotas.yaml"
    assert run(f"export --out {file}", Reply(200, {})).err == f"Written to {file}.\n"


def test_a_script_reads_on_standard_error_what_was_done_and_under_which_id(run: Run):
    assert run(ALTER, Reply(200, APPLIED))[:3] == (0, "", DONE)
    ran = run(f"{ALTER} --output json", Reply(200, APPLIED))
    assert (json.loads(ran.out), ran.err) == (APPLIED, "")


@pytest.mark.usefixtures("terminal")
def test_an_unknown_outcome_is_waited_for(run: Run):
    ran = run(ALTER, LOST, Reply(200, PENDING), Reply(503, {}), Reply(200, RECORD))
    assert ran.code == 0
    assert "Alteration a1: applied\nby User:alice" in ran.out


def test_a_script_does_not_wait_and_show_waits_on_demand(run: Run):
    assert run(ALTER, LOST).code == 4
    assert run("show a1", Reply(200, PENDING)).code == 4
    ran = run("show a1 --wait --output json", Reply(200, PENDING), Reply(200, RECORD))
    assert (ran.code, json.loads(ran.out)) == (0, RECORD)


def test_the_waiting_can_be_stopped(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alter.time, "sleep", raising(KeyboardInterrupt))
    ran = run("show a1 --wait", Reply(200, PENDING))
    assert ran.code == 130
    assert "The alteration goes on: show a1 --wait." in ran.err


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("answer", "words", "result"),
    [
        ("n\n", "--plan p1", (1, 1)),
        ("y\n", "--plan p1", (0, 2)),
        ("n\n", "--plan p1 --yes", (0, 2)),
        ("n\n", "quotas.yaml", (1, 1)),
        ("y\n", "quotas.yaml", (0, 2)),
    ],
)
def test_apply_asks_unless_yes_comes_with_it(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    answer: str,
    words: str,
    result: tuple[int, int],
):
    monkeypatch.chdir(tmp_path)
    Path("quotas.yaml").write_text(
        f"quotas:\n  - entity: {{user: alice}}\n    values: {{{P}: 2}}\n"
    )
    monkeypatch.setattr(sys, "stdin", Typed(answer))
    ran = run(f"apply {words}", Reply(200, PLAN), Reply(200, APPLIED))
    assert (ran.code, len(ran.service.asked)) == result


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
        ([OVER], "last 14 days over in 3 % of minutes, peak 781.25 KiB/s\n"),
        (
            [{**OVER, "share_of_minutes_over": None}],
            "last 14 days perhaps over, peak 781.25 KiB/s\n",
        ),
        ([{**OVER, "share_of_minutes_over": 0}], ""),
        ({"reason": "no-run"}, ""),
    ],
)
@pytest.mark.usefixtures("terminal")
def test_a_check_and_a_plan_say_how_often_past_use_was_over_the_new_limit(
    impact: Any, line: str, run: Run
):
    line = line and f"{{user=alice}} {P}: {line}"
    checked = {**APPLIED, "validate_only": True, "outcome": "validated", "impact": impact}
    ran = run(f"{ALTER} --validate-only", Reply(200, checked))
    assert (ran.code, ran.service.asked[0][3]["impact"]) == (0, True)
    assert ran.err.endswith(f"  {P}: 1 -> 2 (× 2)\n{line}")
    plan = {**PLAN, "impact": impact}
    ran = run("apply --plan p1 --yes", Reply(200, plan), Reply(200, APPLIED))
    assert f"\n\n{line}Plan p1: 1 entity" in ran.err


def test_a_long_plan_is_summed_up(run: Run):
    (change,) = PLAN["changes"]
    plan = {**PLAN, "changes": [{**change, "entity": {"user": f"u{n}"}} for n in range(25)]}
    short = run("apply --plan p1", Reply(200, plan)).err
    long = run("apply --plan p1 --details", Reply(200, plan)).err
    assert "and 5 more: --details prints all of them" in short
    assert ("{user=u24}" in short, "{user=u24}" in long) == (False, True)


@pytest.mark.usefixtures("terminal")
def test_nothing_found_says_so(run: Run):
    ran = run("--describe", Reply(200, {"quotas": []}))
    assert (ran.code, ran.err[:13]) == (0, "Nothing found")


NO_ROWS = "user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value\r\n"
NO_QUOTAS = "apiVersion: quotas/v1\nquotas: []\n"


@pytest.mark.parametrize(("output", "content"), [("csv", NO_ROWS), ("yaml", NO_QUOTAS)])
@pytest.mark.parametrize("command", ["--describe", "export"])
def test_a_document_of_nothing_comes_with_a_sentence(
    run: Run, command: str, output: str, content: str
):
    ran = run(f"{command} --output {output}", Reply(200, content.encode()))
    nothing = "Nothing found: no entity with quotas matches.\n"
    assert (ran.code, ran.out.splitlines(), ran.err) == (0, content.splitlines(), nothing)


AUDIT_ROW = {
    "at": "2026-11-21T00:00:00.000Z",
    "principal": "User:bob",
    "action": "alter",
    "outcome": "applied",
    "entity": ALICE,
    "ops": [{"key": P, "value": 2}],
    "before": {P: 1},
    "after": {P: 2},
    "reason": None,
    "alteration_id": "a1",
}


@pytest.mark.parametrize(
    ("limit", "token", "restricted_to", "sentences"),
    [
        ("1", "more", None, ["There are more than these 1 rows: --limit 0 lists all."]),
        ("1", None, None, []),
        (
            "5",
            None,
            "User:bob",
            ["Only what User:bob did is listed: seeing all needs the permission `audit`."],
        ),
    ],
)
def test_what_the_audit_log_does_not_list_is_a_sentence_in_a_pipe_too(
    run: Run, limit: str, token: str | None, restricted_to: str | None, sentences: list[str]
):
    page = {"rows": [AUDIT_ROW], "next_page_token": token, "restricted_to": restricted_to}
    words = f"audit --since 2h --limit {limit}"
    ran = run(words, Reply(200, page))
    assert (ran.code, ran.err.splitlines()) == (0, sentences)
    ran = run(f"{words} --output json", Reply(200, page))
    report = json.loads(ran.out)
    assert (report["more"], report["restricted_to"]) == (token is not None, restricted_to)
    assert ran.err == ""


def test_times_are_asked_for_in_utc(run: Run):
    page = {"rows": [], "next_page_token": None}
    ran = run("audit --since 2h --until 2026-11-21", Reply(200, page))
    asked = parse_qs(ran.service.asked[0][1].partition("?")[2])
    since, until = (dt.datetime.fromisoformat(asked[name][0]) for name in ("since", "until"))
    assert until == dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    ago = dt.datetime.now(dt.UTC) - since
    assert dt.timedelta(hours=1, minutes=50) < ago < dt.timedelta(hours=2, minutes=10)


def test_yesterday_and_today_begin_at_midnight_of_utc(run: Run):
    page = {"rows": [], "next_page_token": None}
    ran = run("audit --since yesterday --until today", Reply(200, page))
    asked = parse_qs(ran.service.asked[0][1].partition("?")[2])
    since, until = (dt.datetime.fromisoformat(asked[name][0]) for name in ("since", "until"))
    assert (until - since, until.time()) == (dt.timedelta(days=1), dt.time())
    assert dt.timedelta(0) <= dt.datetime.now(dt.UTC) - until < dt.timedelta(days=1, minutes=1)


def test_an_audit_log_without_rows_ends_whatever_token_it_has(run: Run):
    page = {"rows": [], "next_page_token": "again", "restricted_to": None}
    assert "Nothing found." in run("audit --limit 0", Reply(200, page)).err


@pytest.mark.parametrize(
    ("text", "components"),
    [
        ("user=alice,client-id=etl", ["user=alice", "client-id=etl"]),
        (r"user=CN=a\,O=b,client-id:default", ["user=CN=a,O=b", "client-id:default"]),
        ("user^=team-,client-id:absent", ["user^=team-", "client-id:absent"]),
        ("ip", ["ip"]),
        (r"user=a:default", ["user=a:default"]),
    ],
)
@pytest.mark.parametrize("command", ["audit --entity", "--describe --filter", "export --filter"])
def test_entities_have_one_grammar(run: Run, command: str, text: str, components: list[str]):
    page = {"rows": [], "next_page_token": None, "quotas": []}
    ran = run([*command.split(), text], Reply(200, page))
    assert ran.code == 0
    query = parse_qs(ran.service.asked[0][1].partition("?")[2])
    assert (query.get("entity") or query.get("filter")) == components


def test_a_scope_is_one_condition_in_the_same_grammar(run: Run, tmp_path: Path):
    file = tmp_path / "document.yaml"
    file.write_text("quotas: []")
    ran = run(["plan", str(file), "--scope", r"user=CN=a\,O=b", "--scope", "ip"], Reply(200, PLAN))
    ((*_, body),) = ran.service.asked
    assert body["scope"] == ["user=CN=a,O=b", "ip"]
    ran = run(["plan", str(file), "--scope", "user=a,client-id=b"], Reply(200, PLAN))
    assert (ran.code, ran.service.asked) == (2, [])
    assert "--scope takes one condition" in ran.err


def test_an_entity_that_cannot_be_read_is_refused(run: Run):
    ran = run("audit --entity user=alice,etl", Reply(200, {}))
    assert (ran.code, ran.service.asked) == (2, [])
    assert "--entity: condition 2 is none" in ran.err


def test_whoami_lists_what_is_allowed_and_what_is_not(run: Run):
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
        ran = run("whoami", Reply(200, {**me, "policy": policy}))
        assert ran.code == 0
        assert may + printed in ran.out


METRICS = """\
kafka_server_quota_byte_rate{resource="Produce",user="alice",clientid="",} %s
kafka_server_quota_throttle_time{resource="Produce",user="alice",clientid="",} 12.0
kafka_server_quota_byte_rate{resource="Fetch",user="alice",clientid="",} NaN
jvm_threads_current 7
"""


def scraped(rate: int) -> list[Sample]:
    return list(quota_samples(METRICS % rate))


def test_the_busiest_broker_of_each_client_comes_first():
    usages = [
        usage
        for broker, rate in ((1, 50), (2, 90))
        for usage in top.usages_of(broker, scraped(rate))
    ]
    assert [usage.throttle_ms for usage in usages] == [12.0, 12.0]
    for usage in usages:
        usage.limit = 100.0
    idle = top.Usage("bob", "", P, 1, 5.0)
    assert [(usage.user, usage.broker, usage.use) for usage in top.busiest_of([idle, *usages])] == [
        ("alice", 2, 0.9),
        ("bob", 1, None),
    ]


def test_top_puts_the_limits_of_the_service_beside_the_rates(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(top, "_metrics", lambda _: scraped(90))
    limits = Reply(200, {"results": [{"quotas": {P: {"value": 100}}}]})
    ran = run("top --endpoint 1=http://broker-1:9404", limits)
    assert ran.err == ""
    heading, line = ran.out.splitlines()
    assert (ran.code, heading.split()) == (0, list(top._HEADING))
    assert line.split() == ["alice", "-", P, "1", "90", "B/s", "100", "B/s", "90%", "12"]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("text", "sentences", "code"),
    [
        (
            "jvm_threads_current 7\n",
            ["No quota metrics in this scrape: no quotas are set, or the exporter has no rule"],
            0,
        ),
        (
            'kafka_server_produce_byte_rate{user="alice, client-id=etl"} 5\n',
            ["Broker 1: Users that hold `, client-id=` are left out", "No client uses anything"],
            0,
        ),
        ('kafka_server_produce_byte_rate{user="secret"} x\n', ["line 1 is not a metric"], 5),
    ],
)
def test_top_says_what_a_scrape_lacks(run: Run, text: str, sentences: list[str], code: int):
    with serving(lambda _: (200, text)) as url:
        ran = run(f"top --endpoint 1={url}", Reply(200, {"results": []}))
    assert ran.code == code
    assert [sentence for sentence in sentences if sentence not in ran.err] == []
    if len(sentences) == 1:
        assert "No client uses" not in ran.err
    assert "secret" not in ran.err


def test_a_broker_that_tells_nothing_of_quotas_is_left_out(run: Run):
    with serving(lambda _: (200, "jvm_threads_current 7\n")) as url:
        ran = run(f"top --endpoint 1={url} --output json", Reply(200, {"results": []}))
    assert json.loads(ran.out) == {"rows": [], "more": False, "left_out": [1]}


def test_brokers_of_which_none_answers_are_unreachable(run: Run):
    ran = run("top --endpoint 1=http://127.0.0.1:1", Reply(200, {"results": []}))
    assert ran.code == 5
    assert "No broker's metrics can be read" in ran.err


def test_a_plan_says_which_budget_it_would_exceed(run: Run, tmp_path: Path):
    file = tmp_path / "quotas.yaml"
    file.write_text("apiVersion: quotas/v1\nquotas: []\n")
    budget = {"name": "team-a", "key": "producer_byte_rate", "sum": 1200, "limit": 1000}
    exceeded = {**budget, "overbooking": 1.1, "largest": []}
    ran = run(["plan", str(file)], Reply(200, {**PLAN, "budgets": [exceeded]}))
    assert (
        "warning: applied now it would exceed the budget team-a: producer_byte_rate 1.17 KiB/s "
        "of 1.07 KiB/s\n"
    ) in ran.out


SHARED = {
    P: {
        "value": 16 * 2**20,
        "unit": "bytes/s",
        "scope": "per_broker",
        "source": {"entity": ALICE, "level": 3, "name": "user"},
        "shared_by": {"user": "alice", "client-id": "a,b"},
        "overridden": [{"entity": {"user": None}, "value": 5}],
    },
    "controller_mutation_rate": {
        "value": 50,
        "unit": "partitions/s",
        "scope": "cluster",
        "source": {"entity": {"user": None}, "level": 6, "name": "default-user"},
        "shared_by": {"user": "alice", "client-id": ""},
        "overridden": [],
    },
}


def test_a_describe_says_on_a_terminal_who_applied_a_value(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    values = {P: 5, "consumer_byte_rate": 7}
    quota = {"entity": {"user": "alice"}, "values": values, "owners": {P: "team\x1b-a"}}
    plain = ["{user=alice}", "consumer_byte_rate=7", f"{P}=5"]
    owned = Reply(200, {"quotas": [quota]})
    without = Reply(200, {"quotas": [{**quota, "owners": {}}]})
    ran = run("describe", without)
    assert (ran.out.splitlines(), "owners" in ran.service.asked[0][1]) == (plain, False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ran = run("describe", owned)
    assert ran.out.splitlines() == [*plain[:2], f"{P}=5 (applied by team\\x1b-a)"]
    assert ran.service.asked[0][1] == "/quotas?owners=true"
    silent = Reply(503, {"code": "audit-log-unavailable", "detail": "It does not answer."})
    ran = run("describe", silent, without)
    assert (ran.code, ran.out.splitlines()) == (0, plain)
    assert ran.err == "Owners are left out: It does not answer.\n"
    assert run("describe --owner team-a", silent).code == 5


def test_an_export_has_owners_unless_the_log_is_silent(run: Run):
    silent = Reply(503, {"code": "audit-log-unavailable", "detail": "It does not answer."})
    ran = run("export", silent, Reply(200, b"quotas:\n  - entity: {}\n"))
    paths = [asked[1] for asked in ran.service.asked]
    assert paths == ["/quotas?owners=true", "/quotas"]
    assert (ran.code, ran.err) == (0, "Owners are left out: It does not answer.\n")
    assert run("export --output csv", Reply(200, b"a\nb\n")).service.asked[0][1] == "/quotas"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_resolution_says_on_a_terminal_how_much_that_is_and_who_shares_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    ran = run("--resolve --names user=alice --show-overridden", Reply(200, {"quotas": SHARED}))
    words = [
        " (50 partitions/s in the cluster, shared by user=alice)",
        r" (16 MiB/s on each broker, shared by user=alice,client-id=a\,b)",
    ]
    of_tasks, of_bytes = words if is_terminal else ("", "")
    assert ran.out.splitlines() == [
        f"controller_mutation_rate=50 {{user=<default>}}{of_tasks}",
        f"{P}=16777216 {{user=alice}}{of_bytes}",
        f"*{P}=5 {{user=<default>}}",
    ]
