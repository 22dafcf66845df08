"""The numbered alter cases that are applied; the raw protocol tells what is stored."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka import LocalKafka
from tests.integration.http.service_calls import C, I, M, P, R, applied, change, rows
from tests.testkit.http import problem_of
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Names, RawQuotas, RequestLog, entity_of, printed, setting
from tests.testkit.service import RunningService
from tests.testkit.sizes import size


def test_c001_c002_what_is_set_is_described_and_other_keys_stay(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique(), "client-id": unique()}
    result = applied(service, names, {P: 10000, C: 20000})
    found = (result["changed"], result["before"], result["after"])
    assert found == (True, {}, {P: 10000, C: 20000})
    assert raw.stored(names) == {P: 10000.0, C: 20000.0}
    result = applied(service, names, {P: 15000})
    assert result["before"] == {P: 10000, C: 20000}
    assert result["after"] == {P: 15000, C: 20000}
    assert raw.stored(names) == {P: 15000.0, C: 20000.0}
    assert raw.stored({"user": names["user"]}) == {}


def test_c004_c005_setting_and_removing_go_together_and_a_missing_key_may_be_removed(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique()}
    applied(service, names, {P: 5000, C: 20000})
    result = applied(service, names, {R: None})
    assert (result["changed"], result["after"]) == (False, {P: 5000, C: 20000})
    result = applied(service, names, {P: 20000, C: None, R: 12.3})
    assert result["after"] == {P: 20000, R: 12.3}
    assert raw.stored(names) == {P: 20000.0, R: 12.3}


def test_c007_removing_from_an_entity_that_was_never_configured_changes_nothing(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    names = {"user": unique("zzz")}
    with broker_log.alterations() as arrived:
        result = applied(service, names, {P: None})
    assert (result["changed"], result["before"], result["after"]) == (False, {}, {})
    assert len(arrived) == 1
    assert raw.stored(names) == {}


def test_c008_validate_only_asks_the_broker_and_changes_nothing(
    service: RunningService, raw: RawQuotas, broker_log: RequestLog
) -> None:
    names = {"user": unique()}
    applied(service, names, {P: 20000, R: 23.45})
    with broker_log.alterations() as arrived:
        answer = service.alter(change(names, {C: 50000}), validate_only=True)
    document = answer.json()
    found = (answer.status_code, document["outcome"], document["validate_only"])
    assert found == (200, "validated", True)
    (result,) = document["results"]
    assert (result["outcome"], result["changed"]) == ("validated", True)
    assert result["before"] == {P: 20000, R: 23.45}
    assert result["after"] == {C: 50000, P: 20000, R: 23.45}
    assert [request["validateOnly"] for request in arrived] == [True]
    assert raw.stored(names) == {P: 20000.0, R: 23.45}


UNUSUAL: dict[str, tuple[Names, str, float]] = {
    "C022 half a partition": ({"user": "u"}, M, 0.5),
    "the smallest percentage": ({"user": "u"}, R, 0.01),
    "the largest percentage": ({"user": "u"}, R, 1e9),
    "the smallest rate": ({"user": "u"}, P, 1),
    "2^53": ({"user": "u"}, C, 2**53),
    "2^63-1 means 2^63": ({"user": "u"}, P, 2**63 - 1),
    "2^63": ({"user": "u"}, P, 2**63),
    "C029 the connection rate that means unlimited": ({"ip": "10.0.0.29"}, I, 2147483647),
    "C065 blanks in a name": ({"user": "user with spaces"}, P, 20000),
    "a blank name": ({"user": " "}, P, 5),
    "a distinguished name": ({"client-id": "O=A client,CN=localhost"}, P, 5),
}


def test_an_unusual_value_or_name_is_stored_as_it_is(
    service: RunningService, raw: RawQuotas, subtests: pytest.Subtests
) -> None:
    for case, (stated, key, value) in UNUSUAL.items():
        with subtests.test(case):
            names = {kind: unique("u") if name == "u" else name for kind, name in stated.items()}
            result = applied(service, names, {key: value})
            assert result["entity"] == names
            assert result["after"] == {key: min(value, 2**63 - 1)}
            assert printed(raw.stored(names)) == printed({key: value})
            assert applied(service, names, {key: None})["after"] == {}


def test_c068_the_three_defaults_are_three_entities(
    service: RunningService, empty_cluster: RawQuotas
) -> None:
    wanted = [({"user": None, "client-id": None}, 8), ({"user": None}, 6), ({"client-id": None}, 4)]
    answer = service.alter(*(change(names, {P: value}) for names, value in wanted))
    assert [result["outcome"] for result in answer.json()["results"]] == ["applied"] * 3
    assert empty_cluster.everything() == {
        frozenset(names.items()): {P: float(value)} for names, value in wanted
    }


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
    wait_until(lambda: raw.stored(names) == {P: 10.0})


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
    history = rows(service, entity=f"user={shared['user']}")[::-1]
    assert len(history) == len(answers) - len(busy)
    assert history[0]["before"] == {}
    for earlier, later in itertools.pairwise(history):
        assert later["before"] == earlier["after"]
    wait_until(lambda: raw.stored(shared) == history[-1]["after"])


def test_an_entity_is_made_replaced_and_removed(service: RunningService, raw: RawQuotas) -> None:
    names = {"user": unique(), "client-id": None}
    path, alice = f"/quotas/{ClientQuotaEntity.of(names).key}", service.api()
    assert problem_of(alice.get(path), 404)["code"] == "no-such-entity"
    made = alice.put(path, json={"values": {P: 5, C: 7}})
    assert made.status_code == 200
    read = alice.get(path)
    assert made.headers["ETag"] == read.headers["ETag"]
    assert read.json()["values"] == {P: 5, C: 7}
    assert read.headers["ETag"] == alice.get(path).headers["ETag"]
    replaced = alice.put(
        path, json={"values": {C: 9}}, headers={"If-Match": read.headers["ETag"]}
    ).json()
    assert replaced["results"][0]["before"] == {P: 5, C: 7}
    assert raw.everything()[entity_of(names)] == {C: 9}
    removed = alice.delete(path, params={"reason": "INC-1"})
    assert (removed.json()["outcome"], removed.json()["readable"]) == ("applied", True)
    assert entity_of(names) not in raw.everything()
    assert [row["after"] for row in rows(service, entity=f"user={names['user']}")] == [
        {},
        {C: 9},
        {P: 5, C: 7},
    ]
    back = alice.post(f"{removed.headers['Location']}/revert", json={})
    assert back.json()["results"][0]["after"] == {C: 9}


TRIES = size(20, 1000)
AT_ONCE = 4


def test_before_and_changed_are_true_where_another_tool_has_just_changed_it(
    service: RunningService, broker: LocalKafka
) -> None:
    def tried(number: int) -> list[Any]:
        wrong = []
        with RawQuotas(broker.bootstrap_servers) as other_tool:
            for wanted in (1000, 3000) * (TRIES // AT_ONCE // 2):
                names = {"user": unique(f"overtaken-{number}")}
                applied(service, names, {P: 1000})
                other_tool.alter(setting(names, {P: 2000.0}))
                result = applied(service, names, {P: wanted})
                if (result["before"], result["changed"]) != ({P: 2000}, True):
                    wrong.append(result)
        return wrong

    service.api()  # threads that make a client each lose all but one
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [item for wrong in pool.map(tried, range(AT_ONCE)) for item in wrong]
    assert not found, f"{len(found)} of {TRIES}: {found[:3]}"


APIS = ("DescribeQuorum", "DescribeClientQuotas", "AlterClientQuotas")


def requests_to_brokers(service: RunningService) -> list[float]:
    """Return how many requests of each API the service has sent."""
    text = service.api().get("/metrics").text
    return [
        sum(
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith(f'kafka_request_seconds_count{{api="{api}"')
        )
        for api in APIS
    ]


def test_one_alteration_is_a_barrier_a_read_and_the_change(service: RunningService) -> None:
    """The fewest of several: the image and the watch for drift describe in between."""
    taken = []
    for _ in range(4):
        before = requests_to_brokers(service)
        assert service.alter(change({"user": unique()}, {P: 5}), wait="none").status_code == 200
        after = requests_to_brokers(service)
        taken.append([now - then for then, now in zip(before, after, strict=True)])
    assert min(taken) == [1, 1, 1]
