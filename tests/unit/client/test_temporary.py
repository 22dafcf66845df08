"""Values for a time at the command: ``--for``, ``--until``, ``temporary``, ``keep``."""

import json
from pathlib import Path
from typing import Any

from tests.unit.client.conftest import PLAN, Reply, Run

P = "producer_byte_rate"
END = "2026-11-28T06:00:00.000Z"
ROW: dict[str, Any] = {
    "alteration_id": "a1",
    "entity": {"user": "alice"},
    "entity_key": "k",
    "key": P,
    "value": 9000,
    "returns_to": None,
    "expires_at": END,
    "principal": "User:ci",
    "reason": None,
}
PAGE = Reply(200, {"rows": [ROW], "next_page_token": None})
APPLIED = Reply(
    200, {"alteration_id": "a1", "outcome": "applied", "results": [], "validate_only": False}
)
ALTER = f"--alter --yes --names user=alice --add {P}=9000"


def test_a_change_says_until_when(run: Run):
    assert run(f"{ALTER} --for 4h", APPLIED).service.asked[0][3]["expires_in"] == "4h"
    ran = run(f"{ALTER} --until 2026-11-28T07:00+01:00", APPLIED)
    assert ran.service.asked[0][3]["expires_at"] == "2026-11-28T06:00:00.000000Z"
    assert run("revert a0 --for 90s", APPLIED).service.asked[0][3]["expires_in"] == "90s"
    ran = run("apply --plan p1 --yes --for 2d", Reply(200, PLAN), APPLIED)
    assert ran.service.asked[1][3]["expires_in"] == "2d"


def test_a_time_that_cannot_be_read_is_refused_before_anything_is_asked(run: Run):
    for words in ("--for 4x", "--for 4", "--until tomorrow", "--for 4h --until 2026-11-28"):
        ran = run(f"{ALTER} {words}", APPLIED)
        assert (ran.code, ran.service.asked) == (2, [])
    assert run("--describe --for 4h", PAGE).err.endswith("--for does not belong to --describe.\n")


def test_what_is_for_a_time_is_listed_to_the_last_page(run: Run):
    first = Reply(200, {"rows": [ROW], "next_page_token": "t"})
    ran = run("temporary --prefix user=al", first, PAGE)
    assert ran.code == 0
    assert [line.split()[:6] for line in ran.out.splitlines()[1:]] == [
        [END, "{user=alice}", P, "9000", "unset", "User:ci"]
    ] * 2
    assert ran.service.asked[0][1] == "/quotas/temporary?filter=user%5E%3Dal&page_size=1000"
    assert ran.service.asked[1][1].endswith("&page_token=t")
    found = json.loads(run("temporary --output json", PAGE).out)
    assert found == {"rows": [ROW]}
    assert "no value is for a time" in run("temporary", Reply(200, {**PAGE.body, "rows": []})).err


def test_what_was_set_for_a_time_stays_for_good_or_longer(run: Run):
    ran = run("keep a1", PAGE)
    assert (ran.code, *ran.service.asked[0][:2]) == (0, "PUT", "/quotas/alterations/a1/expiry")
    assert ran.service.asked[0][3] == {"expires_at": None}
    assert run("keep a1 --for 2h", PAGE).service.asked[0][3] == {"expires_in": "2h"}


def test_what_is_printed_says_until_when_it_holds(run: Run):
    end, entity = {"expires_at": END, "returns_to": 1000}, {"user": "alice"}
    quota = {"entity": entity, "values": {P: 9000}, "temporary": {P: end}}
    note = f"Note: {P} of {{user=alice}} is until {END}, then 1000.\n"
    ran = run("--describe --names user=alice", Reply(200, {"quotas": [quota]}))
    assert (ran.out, ran.err) == (f"{{user=alice}}\n{P}=9000\n", note)
    many = Reply(200, {"quotas": [quota] * 1021})
    assert run("--describe", many).err.endswith("Note: 1,001 more are for a time: see temporary.\n")
    source = {"entity": entity, "level": 3, "name": "user", "temporary": end}
    limit = {"value": 9000, "unit": "bytes/s", "scope": "per_broker", "source": source}
    answer = {"quotas": {P: {**limit, "overridden": []}}, "notes": []}
    ran = run("--resolve --names user=alice", Reply(200, answer))
    assert (ran.out, ran.err) == (f"{P}=9000 {{user=alice}}\n", note)
    assert run("--describe --output json", Reply(200, {"quotas": [quota]})).err == ""


def test_a_document_has_what_values_for_a_time_return_to(run: Run):
    quotas = [
        {
            "entity": {"user": "alice"},
            "values": {P: 9000, "request_percentage": 5},
            "temporary": {P: {"expires_at": END, "returns_to": 1000}},
        },
        {
            "entity": {"user": "bob"},
            "values": {P: 9000},
            "temporary": {P: {"expires_at": END, "returns_to": None}},
        },
    ]
    found = json.loads(run("export --output json", Reply(200, {"quotas": quotas})).out)
    values = {P: 1000, "request_percentage": 5}
    assert found["quotas"] == [{"entity": {"user": "alice"}, "values": values}]


def test_a_plan_lists_what_it_leaves(run: Run, tmp_path: Path):
    file = tmp_path / "quotas.yaml"
    file.write_text("apiVersion: quotas/v1\nquotas: []\n")
    left = {**ROW, "proposed": 1000}
    ran = run(["plan", str(file)], Reply(200, {**PLAN, "temporary": [left]}))
    (line,) = [line for line in ran.out.splitlines() if END in line]
    assert (
        line.split() == f"{{user=alice}} {P} is 9000 until {END}, then unset; planned 1000".split()
    )
