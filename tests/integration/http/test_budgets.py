"""Budgets on a real broker and Postgres: what a sum counts, and that two replicas never exceed one.

Each test has a budget of its own: the policy has one for each prefix.
"""

import itertools
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import (
    LATER_S,
    C,
    P,
    applied,
    change,
    end_soon,
    in_s,
    rows,
)
from tests.testkit.kafka import unique
from tests.testkit.outages import until_done
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RawQuotas, RequestLog
from tests.testkit.service import RunningService, running_service
from tests.testkit.sizes import size

LIMIT: Final = 1000
PAIRS: Final = size(6, 200)

Replicas = tuple[RunningService, RunningService]


def policy(prefixes: list[str], limit: int = LIMIT) -> str:
    budgets = "".join(
        f'  - {{name: {prefix}, users: "{prefix}", limits: {{{P}: {limit}B}}}}\n'
        for prefix in prefixes
    )
    return f"apiVersion: quotas-policy/v1\nbudgets:\n{budgets}"


PREFIXES: Final = [f"{unique('budget')}-{number}-" for number in range(8)]
_free: Final = iter(PREFIXES)


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("budgets") / "policy.yaml"
    path.write_text(policy(PREFIXES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def replicas(
    broker: LocalKafka,
    postgres: LocalPostgres,
    policy_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replicas]:
    """Two services of one policy, on one broker and one log."""
    _, url = migrated_database(postgres, "budgets")
    options = {"policy_file": str(policy_file), "drift_interval_s": "1"}
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    with (
        running_service(first, broker.bootstrap_servers, url, **options) as here,
        running_service(second, broker.bootstrap_servers, url, **options) as there,
    ):
        yield here, there


@pytest.fixture(scope="module")
def budgeted(replicas: Replicas) -> RunningService:
    return replicas[0]


@pytest.fixture
def prefix() -> str:
    """A prefix of users that has a budget of 1,000, of which nothing is used."""
    return next(_free)


def exceeded(answer: httpx.Response) -> dict[str, Any]:
    """Return the budget of the one entry of a refusal."""
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (403, "policy-violation"), answer.text
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
    (entry,) = problem["errors"]
    assert entry["code"] == "budget-exceeded"
    budget: dict[str, Any] = entry["budget"]
    return budget


def test_what_would_exceed_a_budget_is_refused_with_who_holds_most_of_it(
    budgeted: RunningService, prefix: str, broker_log: RequestLog
) -> None:
    first, pair = {"user": f"{prefix}a"}, {"user": f"{prefix}a", "client-id": None}
    applied(budgeted, first, {P: 600})
    applied(budgeted, pair, {P: 300, C: 5000})
    late = {"user": f"{prefix}b"}
    with broker_log.nothing_arrives():
        answer = budgeted.alter(change(late, {C: 10, P: 101}), change({"user": unique()}, {P: 1}))
    assert exceeded(answer) == {
        "name": prefix,
        "key": P,
        "sum": 1001,
        "limit": LIMIT,
        "overbooking": 1,
        "largest": [
            {"entity": first, "value": 600},
            {"entity": pair, "value": 300},
            {"entity": late, "value": 101},
        ],
    }
    (entry,) = answer.json()["errors"]
    assert entry["pointer"] == "/alterations/0/ops/1/value"
    record = budgeted.api().get(answer.headers["Location"]).json()
    assert [result["outcome"] for result in record["results"]] == ["refused", "not_applied"]
    assert record["history"][-1]["detail"] == "a budget would be exceeded; nothing was sent"
    (row,) = rows(budgeted, entity=f"user={late['user']}")
    assert (row["outcome"], row["action"]) == ("refused", "alter")
    assert row["error"]["message"] == entry["detail"]
    applied(budgeted, late, {P: 100})


def test_every_request_that_raises_is_judged_and_what_lowers_passes(
    budgeted: RunningService, prefix: str, raw: RawQuotas
) -> None:
    first, two, other = ({"user": f"{prefix}{name}"} for name in ("first", "two", "other"))
    together = [change(first, {P: 600}), change(two, {P: 500})]
    assert exceeded(budgeted.alter(*together, all_or_nothing=False))["sum"] == 1100
    assert exceeded(budgeted.alter(*together, validate_only=True))["sum"] == 1100
    applied(budgeted, first, {P: 600})
    done = budgeted.alter(change(two, {P: 400}))
    lowered = budgeted.alter(change(two, {P: None}))
    assert (done.status_code, lowered.status_code) == (200, 200)
    moved = budgeted.alter(change(first, {P: 200}), change(other, {P: 700}))
    assert moved.status_code == 200, moved.text
    key = ClientQuotaEntity.of(two).key
    put = budgeted.api().put(f"/quotas/{key}", json={"values": {P: 101}})
    assert (exceeded(put)["sum"], put.json()["errors"][0]["pointer"]) == (1001, f"/values/{P}")
    reverted = budgeted.api().post(f"{lowered.headers['Location']}/revert", json={})
    assert exceeded(reverted)["sum"] == 1300
    document = {"apiVersion": "quotas/v1", "quotas": [{"entity": two, "values": {P: 102}}]}
    plan = budgeted.api().post("/quotas/plans", json={"document": document}).json()
    again = budgeted.api().get(f"/quotas/plans/{plan['plan_id']}").json()
    applied_plan = budgeted.api().post(f"/quotas/plans/{plan['plan_id']}/apply", json={})
    assert plan["budgets"] == again["budgets"] == [exceeded(applied_plan)]
    raw.store(two, {P: 5000.0})
    applied(budgeted, two, {P: 4000})
    assert exceeded(budgeted.alter(change(two, {P: 4001})))["sum"] == 4901
    assert budgeted.alter(change(other, {P: None})).status_code == 200


def test_a_key_is_free_again_after_a_refusal_and_a_repeat_is_judged_anew(
    budgeted: RunningService, prefix: str
) -> None:
    applied(budgeted, {"user": f"{prefix}a"}, {P: 1000})
    body = {"alterations": [change({"user": f"{prefix}b"}, {P: 1})]}
    headers = {"Idempotency-Key": prefix}
    refused = budgeted.api().post("/quotas/alterations", json=body, headers=headers)
    assert exceeded(refused)["sum"] == 1001
    applied(budgeted, {"user": f"{prefix}a"}, {P: 999})
    repeated = budgeted.api().post("/quotas/alterations", json=body, headers=headers)
    assert repeated.status_code == 200, repeated.text
    assert repeated.json()["alteration_id"] != refused.json()["alteration_id"]


def test_the_end_of_a_temporary_value_is_not_refused_and_says_what_it_exceeds(
    budgeted: RunningService, prefix: str
) -> None:
    lent = {"user": f"{prefix}lent"}
    applied(budgeted, lent, {P: 900})
    done = budgeted.alter(change(lent, {P: 100}), expires_at=in_s(LATER_S))
    assert done.status_code == 200, done.text
    applied(budgeted, {"user": f"{prefix}used"}, {P: 800})
    end_soon(budgeted, done.json())

    def ended() -> list[Any]:
        found = rows(budgeted, entity=f"user={lent['user']}", action="expire")
        return [row for row in found if row["outcome"] == "applied"]

    wait_until(lambda: bool(ended()), "it does not end")
    (row,) = ended()
    record = budgeted.api().get(f"/quotas/alterations/{row['alteration_id']}").json()
    assert [result["after"] for result in record["results"]] == [{P: 900}]
    assert [result["warnings"] for result in record["results"]] == [
        [f"Budget {prefix}: {P} would add up to 1.66 KiB/s, and may to 1,000 B/s at most."]
    ]


def test_a_row_says_how_full_a_budget_is(budgeted: RunningService, prefix: str) -> None:
    pair = {"user": f"{prefix}a", "client-id": None}
    applied(budgeted, pair, {P: 300})
    applied(budgeted, {"user": f"{prefix}b"}, {C: 5})
    found = {row["name"]: row for row in rows_of_budgets(budgeted)}
    assert list(found) == PREFIXES
    row = {
        "name": prefix,
        "key": P,
        "limit": LIMIT,
        "overbooking": 1,
        "sum": 300,
        "entities": 2,
        "unlimited": 1,
    }
    assert found[prefix] == row
    (explained,) = [
        each for each in rows_of_budgets(budgeted, explain="true") if each["name"] == prefix
    ]
    assert explained == {
        **row,
        "users": prefix,
        "largest": [{"entity": pair, "value": 300}],
        "without_value": [{"user": f"{prefix}b"}],
    }
    assert budgeted.api("mallory").get("/quotas/budgets").status_code == 403


def test_the_metrics_of_the_process_that_watches_say_how_full_a_budget_is(
    replicas: Replicas, prefix: str, raw: RawQuotas
) -> None:
    """What another tool sets counts, too, and may be over the limit."""
    applied(replicas[0], {"user": f"{prefix}a"}, {P: 250})
    wait_until(lambda: filled_ratios(replicas, prefix) == [0.25], "no process says it")
    raw.store({"user": f"{prefix}b"}, {P: 1250})
    wait_until(lambda: filled_ratios(replicas, prefix) == [1.5], "no process says it")


def filled_ratios(replicas: Replicas, name: str) -> list[float]:
    """Return what the metrics of all services say of a budget."""
    texts = [service.api().get("/metrics").text for service in replicas]
    samples = [
        sample
        for text in texts
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "quotas_budget_filled_ratio" and sample.labels["budget"] == name
    ]
    assert all(sample.labels["key"] == P for sample in samples)
    return [sample.value for sample in samples]


def rows_of_budgets(service: RunningService, **parameters: str) -> list[Any]:
    answer = service.api("bob").get("/quotas/budgets", params=parameters)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["rows"]
    found: list[Any] = answer.json()["rows"]
    return found


def test_a_signal_reads_budgets_again(replicas: Replicas, policy_file: Path, prefix: str) -> None:
    """On one replica alone, so that the others' tests go on as they are."""
    service = replicas[1]
    names = {"user": f"{prefix}a"}
    assert exceeded(service.alter(change(names, {P: 1500})))["limit"] == LIMIT
    policy_file.write_text(policy(PREFIXES, 2000), encoding="utf-8")
    assert service.process is not None
    service.process.send_signal(signal.SIGHUP)
    until_done(lambda: service.alter(change(names, {P: 1500})), "the budgets are not read again")
    policy_file.write_text(policy(PREFIXES), encoding="utf-8")
    service.process.send_signal(signal.SIGHUP)
    more = change(names, {P: 1600})
    wait_until(
        lambda: service.alter(more, validate_only=True).status_code == 403,
        "the budgets are not read again",
    )


def test_two_that_fit_one_by_one_are_never_both_applied(
    replicas: Replicas, prefix: str, raw: RawQuotas
) -> None:
    """At once, on two replicas: exactly one of each pair, and the other says what holds."""
    base = {"user": f"{prefix}base"}
    applied(replicas[0], base, {P: 300})
    with ThreadPoolExecutor(2) as pool:
        for number in range(PAIRS):
            names = [{"user": f"{prefix}{number}-{which}"} for which in "ab"]
            asked = [
                pool.submit(replica.alter, change(name, {P: 400 + number}))
                for replica, name in zip(replicas, names, strict=True)
            ]
            answers = [each.result() for each in asked]
            statuses = sorted(answer.status_code for answer in answers)
            assert statuses == [200, 403], [answer.text for answer in answers]
            (refused,) = [answer for answer in answers if answer.status_code == 403]
            assert exceeded(refused)["sum"] == 300 + 2 * (400 + number)
            stored = [raw.stored(name) for name in names]
            assert sorted(map(len, stored)) == [0, 1]
            for service, name in itertools.product(replicas[:1], names):
                assert service.alter(change(name, {P: None})).status_code == 200
