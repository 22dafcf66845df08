"""``advice``: what is listed of it, and the document that does it."""

import json
from typing import Any

import pytest
import yaml

from tests.unit.client.conftest import Reply, Run

P = "producer_byte_rate"
ENTITY: dict[str, Any] = {
    "quota_user": "alice",
    "quota_user_default": False,
    "quota_client_id": "",
    "quota_client_default": False,
    "key": P,
}


def body(entity: dict[str, Any], **op: Any) -> dict[str, Any]:
    return {"alterations": [{"entity": entity, "ops": [{"key": P, **op}], "expected": {P: 4096}}]}


RAISE: dict[str, Any] = {
    **ENTITY,
    "action": "raise",
    "limit": 4096,
    "value": 8192,
    "factor": 2.0,
    "reason": "It needs 6 KiB/s.",
    "censored": True,
    "body": body({"user": "alice"}, value=8192),
}
LOWER: dict[str, Any] = {
    **RAISE,
    "quota_client_default": True,
    "action": "lower",
    "value": 1024,
    "factor": 4.0,
    "reason": "A quarter would do.",
    "censored": False,
    "body": body({"user": "alice", "client-id": None}, value=1024),
}
STALE: dict[str, Any] = {
    **ENTITY,
    "quota_user": "b\x1b[mob",
    "kind": "idle",
    "value": 4096,
    "reason": None,
    "body": body({"user": "b\x1b[mob"}, remove=True),
}


def page(*rows: dict[str, Any]) -> Reply:
    return Reply(200, {"rows": rows, "next_page_token": None})


REPLIES = (page(RAISE), page(LOWER), page(STALE))


def test_each_kind_of_advice_is_a_table_with_its_reason(run: Run):
    ran = run("advice", *REPLIES)
    assert [each[1] for each in ran.service.asked] == [
        "/analytics/recommendations?action=raise&page_size=1000",
        "/analytics/recommendations?action=lower&page_size=1000",
        "/analytics/stale?page_size=1000",
    ]
    heading = "advice entity key now advised why"
    assert [" ".join(line.split()) for line in ran.out.splitlines()] == [
        heading,
        f"raise {{user=alice}} {P} 4 KiB/s 8 KiB/s (× 2) It needs 6 KiB/s., throttled",
        heading,
        f"lower {{user=alice, client-id=<default>}} {P} 4 KiB/s 1 KiB/s (÷ 4) A quarter would do.",
        heading,
        rf"remove {{user=b\x1b[mob}} {P} 4 KiB/s unset idle",
    ]


def test_advice_in_other_formats(run: Run):
    found = json.loads(run("advice --output json", *REPLIES).out)
    assert found == {"raise": [RAISE], "lower": [LOWER], "remove": [STALE]}
    rows = run("advice --output csv", *REPLIES).out.splitlines()
    assert rows[0] == "advice,entity,key,now,advised,why"
    assert rows[1] == f"raise,{{user=alice}},{P},4096,8192,It needs 6 KiB/s."
    assert json.loads(run("advice --only lower --output json", page(LOWER)).out) == {
        "lower": [LOWER]
    }


def test_the_document_does_all_of_it(run: Run):
    document: Any = yaml.safe_load(run("advice --document", *REPLIES).out)
    assert document == {
        "apiVersion": "quotas/v1",
        "quotas": [
            {"entity": {"user": "alice"}, "values": {P: 8192}},
            {"entity": {"user": "alice", "client-id": None}, "values": {P: 1024}},
            {"entity": {"user": "b\x1b[mob"}, "values": {P: "unset"}},
        ],
    }


@pytest.mark.parametrize("options", ["", "--output json"])
def test_advice_that_no_run_has_published_is_missing(run: Run, options: str):
    no_run = Reply(404, {"title": "No run", "code": "no-run"})
    ran = run(f"advice {options}", no_run, no_run, page())
    assert ran.code == 0
    if options:
        assert json.loads(ran.out) == {"raise": None, "lower": None, "remove": []}
    else:
        assert ran.err.splitlines() == [
            "What to raise is not known: `quota-pipeline rightsize … --pg` finds it.",
            "What to lower is not known: `quota-pipeline rightsize … --pg` finds it.",
        ]


def test_no_advice_means_that_every_list_is_empty_and_every_value_is_judged(run: Run):
    found = run("advice", page(), page(), page(), page())
    assert found.err == "Nothing found: no advice.\n"
    unknown = {**RAISE, "action": "insufficient", "value": None, "factor": None, "body": None}
    found = run("advice", page(), page(), page(STALE), page(unknown))
    assert found.err == "Of some values the data do not suffice for advice yet.\n"
