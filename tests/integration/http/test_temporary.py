"""Values for a time: they end once, by the database's clock, and leave what was changed since."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.entities import ClientQuotaEntity
from tests.integration.http.service_calls import (
    LATER_S,
    C,
    P,
    R,
    applied,
    change,
    end_soon,
    in_s,
    pages,
    rows,
    soon,
)
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import Names, RawQuotas
from tests.testkit.service import RunningService


def set_for(
    service: RunningService, names: Names, values: Mapping[str, Any], seconds: float = LATER_S
) -> dict[str, Any]:
    answer = service.alter(change(names, values), expires_at=in_s(seconds), reason="for a night")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def temporary(service: RunningService, names: Names, **parameters: Any) -> list[Any]:
    (kind, name), *_ = names.items()
    answer = service.api("bob").get(
        "/quotas/temporary", params={"filter": f"{kind}={name}", **parameters}
    )
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["rows"]
    return found


def ends(service: RunningService, names: Names) -> list[Any]:
    (kind, name), *_ = names.items()
    found = rows(service, entity=f"{kind}={name}", action="expire")
    return [row for row in found if row["outcome"] != "unknown"]


def ended(service: RunningService, names: Names) -> Any:
    """Wait until what was set for a time has ended, and return the one row that says so."""
    wait_until(lambda: not temporary(service, names) and bool(ends(service, names)))
    (row,) = ends(service, names)
    return row


def test_a_value_for_a_time_returns_to_what_was_there_and_the_log_says_so(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"user": unique("night")}
    applied(service, names, {P: 1000, C: 7})
    document = set_for(service, names, {P: 9000, R: 50, C: None})
    (after,) = [result["after"] for result in document["results"]]
    assert after == {P: 9000, R: 50}
    held = {row["key"]: (row["value"], row["returns_to"]) for row in temporary(service, names)}
    assert held == {P: (9000, 1000), R: (50, None), C: (None, 7)}
    (row, *_) = temporary(service, names, has_key=P)
    assert row == {
        "alteration_id": document["alteration_id"],
        "entity": names,
        "entity_key": ClientQuotaEntity.of(names).key,
        "key": P,
        "value": 9000,
        "returns_to": 1000,
        "expires_at": document["expires_at"],
        "principal": "User:alice",
        "reason": "for a night",
    }
    (first,) = rows(service, entity=f"user={names['user']}", action="alter")[:1]
    assert first["expires_at"] == document["expires_at"]
    end_soon(service, document)
    end = ended(service, names)
    assert raw.stored(names) == {P: 1000.0, C: 7.0}
    moved = service.api().get(f"/quotas/alterations/{document['alteration_id']}").json()
    assert end["at"] >= moved["expires_at"]
    members = ("principal", "outcome", "before", "after", "expires", "reason")
    assert [end[name] for name in members] == [
        "User:alice",
        "applied",
        {P: 9000, R: 50},
        {P: 1000, C: 7},
        document["alteration_id"],
        "for a night",
    ]
    record = service.api().get(f"/quotas/alterations/{end['alteration_id']}").json()
    assert (record["action"], record["expires"]) == ("expire", document["alteration_id"])


def test_what_another_tool_has_changed_since_is_left_and_reported(
    service: RunningService, raw: RawQuotas
) -> None:
    wholly, partly, back = ({"user": unique("since")} for _ in range(3))
    raised = []
    for names in (wholly, partly, back):
        applied(service, names, {P: 1000, C: 2000})
        raised.append(set_for(service, names, {P: 9000, C: 9500}))
    raw.store(wholly, {P: 4000.0, C: 5000.0})
    raw.store(partly, {P: 4000.0})
    raw.store(back, {P: 1000.0, C: 2000.0})
    for document in raised:
        end_soon(service, document)
    end = ended(service, wholly)
    assert (end["outcome"], end["after"]) == ("observed_other", {P: 4000, C: 5000})
    end = ended(service, partly)
    assert (end["outcome"], end["after"]) == ("observed_other", {P: 4000, C: 2000})
    assert raw.stored(partly) == {P: 4000.0, C: 2000.0}
    end = ended(service, back)
    assert (end["outcome"], end["after"]) == ("applied", {P: 1000, C: 2000})
    record = service.api().get(f"/quotas/alterations/{end['alteration_id']}").json()
    assert [result["changed"] for result in record["results"]] == [False]


def test_what_is_set_again_is_for_good_or_ends_at_its_own_time_and_returns_to_the_first(
    service: RunningService, raw: RawQuotas
) -> None:
    good, longer, shorter = ({"user": unique("again")} for _ in range(3))
    for names in (good, longer, shorter):
        applied(service, names, {P: 1000, C: 2000})
        set_for(service, names, {P: 5000, C: 6000}, LATER_S)
    applied(service, good, {P: 5000})
    assert [row["key"] for row in temporary(service, good)] == [C]
    set_for(service, longer, {P: 7000}, 2 * LATER_S)
    held = {row["key"]: (row["value"], row["returns_to"]) for row in temporary(service, longer)}
    assert held == {P: (7000, 1000), C: (6000, 2000)}
    shortly = change(shorter, {P: 8000})
    soon(lambda end: service.alter(shortly, expires_at=end))
    wait_until(lambda: [row["key"] for row in temporary(service, shorter)] == [C])
    wait_until(lambda: len(ends(service, shorter)) == 1)
    assert raw.stored(shorter) == {P: 1000.0, C: 6000.0}
    path = f"/quotas/{ClientQuotaEntity.of(shorter).key}"
    assert service.api().delete(path).status_code == 200
    assert temporary(service, shorter) == []


def test_another_end_is_set_for_what_is_pending_and_written_into_its_record(
    service: RunningService, raw: RawQuotas
) -> None:
    names = {"client-id": unique("good")}
    first = set_for(service, names, {P: 5000}, LATER_S)
    path = f"/quotas/alterations/{first['alteration_id']}"
    later = service.api().put(f"{path}/expiry", json={"expires_in": "2h"})
    assert later.status_code == 200, later.text
    (row,) = later.json()["rows"]
    assert row["expires_at"] > first["expires_at"]
    assert temporary(service, names) == [row]
    record = service.api().get(path).json()
    assert record["expires_at"] == row["expires_at"]
    assert record["history"][-1]["event"] == "expiry"
    end_soon(service, first)
    assert ended(service, names)["outcome"] == "applied"
    gone = service.api().put(f"{path}/expiry", json={"expires_at": None})
    assert (gone.status_code, gone.json()["code"]) == (404, "not-found")
    second = set_for(service, names, {P: 5000}, LATER_S)
    path = f"/quotas/alterations/{second['alteration_id']}"
    denied = service.api("bob").put(f"{path}/expiry", json={"expires_at": None})
    assert denied.status_code == 403
    for_good = service.api().put(f"{path}/expiry", json={"expires_at": None})
    assert for_good.status_code == 200, for_good.text
    assert temporary(service, names) == []
    assert "expires_at" not in service.api().get(path).json()
    assert raw.stored(names) == {P: 5000.0}


def test_whatever_alters_takes_an_end(service: RunningService, raw: RawQuotas) -> None:
    replaced, removed, reverted = ({"user": unique("any")} for _ in range(3))
    for names in (replaced, removed, reverted):
        applied(service, names, {P: 1000, C: 2000})
    put_path, delete_path = (
        f"/quotas/{ClientQuotaEntity.of(names).key}" for names in (replaced, removed)
    )
    body = {"values": {P: 3000}}
    put = soon(lambda end: service.api().put(put_path, json={**body, "expires_at": end}))
    assert "expires_at" in put
    soon(lambda end: service.api().delete(delete_path, params={"expires_at": end}))
    raised = service.alter(change(reverted, {P: 9000})).json()
    revert = f"/quotas/alterations/{raised['alteration_id']}/revert"
    soon(lambda end: service.api().post(revert, json={"expires_at": end}))
    assert [ended(service, names)["before"] for names in (replaced, removed, reverted)] == [
        {P: 3000},
        {},
        {P: 1000, C: 2000},
    ]
    assert raw.stored(replaced) == raw.stored(removed) == {P: 1000.0, C: 2000.0}
    assert raw.stored(reverted) == {P: 9000.0, C: 2000.0}


def test_an_end_is_checked_like_everything_else(
    service: RunningService, raw: RawQuotas, subtests: pytest.Subtests
) -> None:
    names = {"user": unique("checked")}
    faults: list[tuple[dict[str, Any], int, str]] = [
        ({"expires_in": "soon"}, 400, "wrong-type"),
        ({"expires_in": 60}, 400, "wrong-type"),
        ({"expires_at": "tomorrow"}, 400, "wrong-type"),
        ({"expires_in": "59s"}, 422, "out-of-range"),
        ({"expires_in": "91d"}, 422, "out-of-range"),
        ({"expires_at": in_s(-1)}, 422, "time-has-passed"),
        ({"expires_at": in_s(91 * 24 * 3600)}, 422, "out-of-range"),
        ({"expires_in": "1h", "expires_at": in_s(60)}, 422, "two-expiries"),
    ]
    for options, status, code in faults:
        with subtests.test(**options):
            answer = service.alter(change(names, {P: 5}), **options)
            assert (answer.status_code, answer.json()["errors"][0]["code"]) == (status, code)
    assert raw.stored(names) == {}
    checked = service.alter(change(names, {P: 5}), expires_in="90s", validate_only=True).json()
    assert (checked["outcome"], "expires_at" in checked) == ("validated", True)
    assert temporary(service, names) == []
    raw.store(names, {R: 0.001})
    odd = service.alter(change(names, {R: 5}), expires_in="90s")
    assert (odd.status_code, odd.json()["errors"][0]["code"]) == (422, "cannot-be-restored")
    assert raw.stored(names) == {R: 0.001}
    nothing = service.api().put(f"/quotas/alterations/{checked['alteration_id']}/expiry", json={})
    assert nothing.status_code == 400


def test_the_list_is_paged_in_the_order_of_the_quotas(service: RunningService) -> None:
    prefix = unique("paged")
    listed = [({"user": f"{prefix}-{n}"}, key) for n in range(3) for key in (C, P)]
    for n in reversed(range(3)):
        set_for(service, {"user": f"{prefix}-{n}"}, {P: 5, C: 6}, LATER_S)
    api, wanted = service.api("bob"), {"filter": f"user^={prefix}", "page_size": 2}
    found = [row for page in pages(api, "/quotas/temporary", **wanted) for row in page["rows"]]
    assert [(row["entity"], row["key"]) for row in found] == listed


def test_reads_exports_and_plans_know_what_is_for_a_time(
    service: RunningService, raw: RawQuotas
) -> None:
    prefix = unique("reads")
    names, other, gone = ({"user": f"{prefix}-{n}"} for n in range(3))
    applied(service, names, {P: 1000, C: 7})
    applied(service, gone, {P: 3})
    set_for(service, names, {P: 9000}, LATER_S)
    set_for(service, other, {C: 500}, LATER_S)
    end = set_for(service, gone, {P: None}, LATER_S)["expires_at"]
    api, query = service.api("bob"), {"filter": f"user^={prefix}"}
    listed = api.get("/quotas", params=query)
    held = {
        quota["entity"]["user"]: {key: each["returns_to"] for key, each in more.items()}
        for quota in listed.json()["quotas"]
        if (more := quota.get("temporary"))
    }
    assert held == {names["user"]: {P: 1000}, other["user"]: {C: None}}
    alone = api.get(f"/quotas/{ClientQuotaEntity.of(names).key}")
    assert alone.json()["temporary"][P]["returns_to"] == 1000
    quotas = [api.get("/quotas/resolve", params=names).json()["quotas"]]
    many = api.post("/quotas/resolve", json={"identities": [names, {"user": unique()}]}).json()
    quotas += [many["results"][0]["quotas"]]
    for found in quotas:
        assert found[P]["source"]["temporary"]["returns_to"] == 1000
        assert "temporary" not in found[C]["source"]
    document = api.get("/quotas", params=query, headers={"Accept": "application/yaml"}).text
    assert "values: {consumer_byte_rate: 7, producer_byte_rate: 1000}\n    # " in document
    assert f"# producer_byte_rate removed until {end}" in document
    table = api.get("/quotas", params=query, headers={"Accept": "text/csv"}).text
    assert [line.rpartition(",")[2] for line in table.split()[1:]] == ["7", "1000", "3"]
    asked = {"document": document, "format": "yaml", "scope": [f"user^={prefix}"]}
    plan = api.post("/quotas/plans", json=asked).json()
    assert plan["changes"] == []
    assert {(each["entity"]["user"], each["proposed"]) for each in plan["temporary"]} == {
        (names["user"], 1000),
        (gone["user"], 3),
    }
    path = f"/quotas/plans/{plan['plan_id']}/apply"
    assert service.api().post(path, json={}).status_code == 200
    assert raw.stored(names) == {P: 9000.0, C: 7.0}
    plan = api.post("/quotas/plans", json=asked).json()
    path = f"/quotas/plans/{plan['plan_id']}/apply"
    forced = service.api().post(path, json={"force": True})
    assert forced.status_code == 200, forced.text
    assert raw.stored(names) == {P: 1000.0, C: 7.0}
    assert [row["entity"] for row in temporary(service, names)] == []
    after = api.get("/quotas", params=query)
    assert after.headers["ETag"] != listed.headers["ETag"]
    again = api.get(f"/quotas/{ClientQuotaEntity.of(names).key}")
    assert again.headers["ETag"] != alone.headers["ETag"]
