"""Two replicas of different policies on one log: rights, plans and reverts agree between them."""

import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest

from app.localdev.kafka import LocalKafka
from tests.testkit.accounts import granted
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, change, until_done
from tests.testkit.service import RunningService, acl, new_address, running_service
from tests.testkit.sizes import SEED, size

KEY: Final = "producer_byte_rate"
POLICY: Final = """\
apiVersion: quotas-policy/v1
rules:
  - name: everybody
    principals: ["*"]
    entities: ["user^=free-"]
    keys:
      producer_byte_rate: {max: 1000}
"""
RULES: Final = {
    "literal-here": [("ALLOW", True, False)],
    "literal-elsewhere": [("ALLOW", False, False)],
    "prefixed-here": [("ALLOW", True, True)],
    "prefixed-elsewhere": [("ALLOW", False, True)],
    "denied-by-prefix": [("ALLOW", True, False), ("DENY", True, True)],
    "denied-elsewhere": [("ALLOW", True, False), ("DENY", False, True)],
}
"""ACLs of a principal: permission, of the caller's own host, prefixed.

Source: brokers create ACLs of the resource Cluster for the name ``kafka-cluster`` alone.
"""
MAY_ALTER: Final = {"literal-here", "prefixed-here", "denied-elsewhere"}
ROUNDS: Final = size(6, 60)


@pytest.fixture(scope="module")
def replicas(
    service: RunningService, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningService, RunningService]]:
    """The service, and another on the same broker and log, whose policy is narrow."""
    folder = tmp_path_factory.mktemp("narrow-replica")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    url = service.environ["QUOTAS_DATABASE_URL"]
    options = {"policy_file": str(policy)}
    with running_service(folder, kafka.bootstrap_servers, url, **options) as narrow:
        yield service, narrow


def rows_of(service: RunningService, name: str) -> list[dict[str, Any]]:
    """Return what the log has of a user, oldest first."""
    path = f"/audit?entity=user={name}&page_size=1000"
    rows: list[dict[str, Any]] = service.api("auditor").get(path).json()["rows"]
    return rows[::-1]


def planned(service: RunningService, name: str, value: float, owner: str) -> dict[str, Any]:
    quotas = [{"entity": {"user": name}, "values": {KEY: value}}]
    document = {"apiVersion": "quotas/v1", "quotas": quotas}
    answer = service.api().post("/quotas/plans", json={"document": document, "owner": owner})
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


def test_a_plan_of_a_lenient_replica_is_judged_by_the_policy_of_the_one_that_applies_it(
    replicas: tuple[RunningService, RunningService],
) -> None:
    lenient, narrow = replicas
    name = unique("free-planned")
    path = f"/quotas/plans/{planned(lenient, name, 5000, 'team')['plan_id']}/apply"
    refused = narrow.api().post(path, json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "policy-violation")
    assert refused.json()["sent_to_cluster"] == "no"
    assert {row["outcome"] for row in rows_of(lenient, name)} <= {"refused"}
    assert lenient.api().post(path, json={}).status_code == 200


def test_a_revert_is_judged_by_the_policy_of_the_replica_that_is_asked(
    replicas: tuple[RunningService, RunningService],
) -> None:
    lenient, narrow = replicas
    name = unique("free-reverted")
    for value in (5000, 10):
        done = lenient.api().post(ALTERATIONS, json=change(name, value))
        assert done.status_code == 200, done.text
    path = f"{done.headers['Location']}/revert"
    refused = narrow.api().post(path, json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "policy-violation")
    assert lenient.api().post(path, json={}).status_code == 200


def test_a_key_that_one_replica_has_used_is_no_second_alteration_of_the_other(
    replicas: tuple[RunningService, RunningService],
) -> None:
    lenient, narrow = replicas
    name = unique("free-keyed")
    headers = {"Idempotency-Key": name}
    first, second = (
        replica.api().post(ALTERATIONS, json=change(name, 500), headers=headers)
        for replica in (lenient, narrow)
    )
    assert first.json()["alteration_id"] == second.json()["alteration_id"]
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(rows_of(lenient, name)) == 1


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_acls_on_hosts_and_prefixes_are_judged_alike(
    replicas: tuple[RunningService, RunningService], kafka: LocalKafka, rule: str
) -> None:
    """A witness whose right came last tells when a replica judges by the ACLs of now."""
    here, elsewhere = new_address(), new_address()
    acls = [
        acl("mallory", "ALTER_CONFIGS", permission, here if own else elsewhere, prefixed=prefixed)
        for permission, own, prefixed in RULES[rule]
    ]
    body = change(unique("free-acl"), 10, validate_only=True)
    with granted(kafka, *acls), granted(kafka, acl("auditor", "ALTER_CONFIGS", host=here)):
        for replica in replicas:
            witness, caller = (replica.api(name, here) for name in ("auditor", "mallory"))
            until_done(partial(witness.post, ALTERATIONS, json=body), "the ACLs are not read")
            answer = caller.post(ALTERATIONS, json=body)
            assert answer.status_code == (200 if rule in MAY_ALTER else 403), answer.text


def test_plans_and_reverts_at_once_leave_a_log_without_a_gap(
    replicas: tuple[RunningService, RunningService],
) -> None:
    """Whoever is applied saw what the one before it left; whoever is not says why."""
    name = unique("free-raced")
    values = iter(
        random.Random(SEED).sample(range(1, 1000), 3 * ROUNDS)
    )  # a repeat changes nothing
    seen = set[tuple[int, str | None]]()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(ROUNDS):
            last = replicas[0].api().post(ALTERATIONS, json=change(name, next(values)))
            assert last.status_code == 200, last.text
            plans = [planned(each, name, next(values), "team") for each in replicas]
            paths = [f"/quotas/plans/{plan['plan_id']}/apply" for plan in plans]
            paths += [f"{last.headers['Location']}/revert"] * 2
            asked = [
                pool.submit(replicas[number % 2].api().post, path, json={})
                for number, path in enumerate(paths)
            ]
            answers = [each.result() for each in asked]
            seen |= {(each.status_code, each.json().get("code")) for each in answers}
            assert sum(each.status_code == 200 for each in answers) >= 1
    assert seen <= {
        (200, None),
        (403, "policy-violation"),
        (409, "entity-busy"),
        (412, "plan-outdated"),
        (412, "expectation-failed"),
    }
    applied = [row for row in rows_of(replicas[0], name) if row["outcome"] == "applied"]
    assert len(applied) > ROUNDS
    for earlier, later in itertools.pairwise(applied):
        assert later["before"] == earlier["after"], later
