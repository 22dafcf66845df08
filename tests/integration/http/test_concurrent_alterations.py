"""Alterations of one entity that come together: one after the other, and the log says how."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.integration.http.audit_rows import rows
from tests.integration.http.changes import C, P, change
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

CALLERS = 8
ROUNDS = 5


def test_an_alteration_knows_what_the_one_before_it_wrote_even_if_nobody_waited(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    for value in range(1, 11):
        expected = {P: value - 1 or None}
        answer = service.alter({**change(names, {P: value}), "expected": expected}, wait="none")
        assert answer.status_code == 200, answer.text
        assert answer.json()["results"][0]["before"] == ({P: value - 1} if value > 1 else {})
    raw.wait_until(lambda: raw.stored(names) == {P: 10.0})


def test_the_rows_of_an_entity_follow_each_other_however_many_callers_alter_it(
    service: RunningService, raw: RawQuotas
) -> None:
    shared, team = {"user": unique()}, unique()

    def alter(caller: int) -> list[httpx.Response]:
        headers = service.api().headers
        with httpx.Client(base_url=service.url, headers=headers, timeout=30) as api:
            return [
                api.post("/quotas/alterations", json=body(caller, turn)) for turn in range(ROUNDS)
            ]

    def body(caller: int, turn: int) -> dict[str, Any]:
        key = (P, C)[caller % 2]
        own = change({"user": f"{team}-{caller}"}, {P: turn + 1})
        alterations = [change(shared, {key: 1 + caller * ROUNDS + turn}), own]
        return {
            "alterations": alterations[:: 1 if caller % 3 else -1],
            "wait": ("none", "readable")[turn % 2],
        }

    with ThreadPoolExecutor(CALLERS) as callers:
        answers = [item for many in callers.map(alter, range(CALLERS)) for item in many]
    assert {answer.status_code for answer in answers} <= {200, 409}
    busy = [answer for answer in answers if answer.status_code == 409]
    assert all(item.json()["code"] == "entity-busy" for item in busy)
    assert all(item.headers["Retry-After"] and item.json()["retry"] == "safe" for item in busy)
    story = rows(service, entity=f"user={shared['user']}")[::-1]
    assert len(story) == len(answers) - len(busy)
    assert story[0]["before"] == {}
    for earlier, later in itertools.pairwise(story):
        assert later["before"] == earlier["after"]
    raw.wait_until(lambda: raw.stored(shared) == story[-1]["after"])


def test_what_another_tool_wrote_is_seen_before_the_next_alteration(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    service.alter(change(names, {P: 5}), wait="none")
    raw.wait_until(lambda: raw.stored(names) == {P: 5.0})
    raw.store(names, {P: 6.0})
    answer = service.alter(change(names, {C: 7}))
    assert answer.json()["results"][0]["before"] == {P: 6}
    assert answer.json()["results"][0]["after"] == {C: 7, P: 6}
