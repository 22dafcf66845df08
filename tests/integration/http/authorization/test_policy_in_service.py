"""The policy with a real broker and Postgres: what is refused never arrives, and is recorded."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.localdev.kafka import LocalKafka, LocalTls
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import P, change
from tests.testkit.kafka import PLAIN_USERS, unique
from tests.testkit.outages import until_done
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.raw_quotas import RequestLog
from tests.testkit.service import DEADLINE_S, RunningService, running_service

POLICY = """\
apiVersion: quotas-policy/v1
rules:
  - name: team-a
    principals: ["User:alice"]
    entities: ["user^=team-a-"]
    keys:
      producer_byte_rate: {min: 10, max: 100}
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def urls(postgres: LocalPostgres) -> tuple[str, str]:
    """A database of the owner's and the service's."""
    owner, service = migrated_database(postgres, "narrowed")
    return owner, service


@pytest.fixture(scope="module")
def narrowed(
    broker: LocalKafka,
    tls: LocalTls,
    urls: tuple[str, str],
    policy: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    settings = {
        "policy_file": str(policy),
        "mode": "production",
        "shutdown_delay_s": "0",
        "basic_sasl_mechanism": "PLAIN",
        "basic_bootstrap_servers": broker.address("SASL_SSL"),
        "kafka_ssl_ca_file": str(tls.truststore_file),
    }
    folder = tmp_path_factory.mktemp("narrowed")
    with running_service(folder, broker.bootstrap_servers, urls[1], **settings) as running:
        yield running


def metric(service: RunningService, name: str) -> float:
    text = httpx.get(f"{service.url}/metrics", timeout=DEADLINE_S).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_what_is_not_covered_never_arrives(
    narrowed: RunningService, broker_log: RequestLog
) -> None:
    good, other = {"user": f"team-a-{unique()}"}, {"user": unique()}
    with broker_log.nothing_arrives():
        answer = narrowed.alter(change(good, {P: 50}), change(other, {P: 50}))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (403, "policy-violation")
    assert [error["pointer"] for error in problem["errors"]] == ["/alterations/1/entity"]
    (first, *_) = narrowed.api("auditor").get("/audit?action=denied").json()["rows"]
    assert (first["principal"], first["outcome"]) == ("User:alice", "refused")
    assert narrowed.alter(change(good, {P: 50})).status_code == 200


def test_the_policy_also_restricts_a_caller_that_the_broker_allows(
    narrowed: RunningService, broker_log: RequestLog
) -> None:
    body = {"alterations": [change({"user": f"team-a-{unique()}"}, {P: 50})]}
    login = httpx.BasicAuth("admin", PLAIN_USERS["admin"])
    with broker_log.nothing_arrives(), httpx.Client(base_url=narrowed.url, auth=login) as client:
        assert client.get("/quotas", timeout=DEADLINE_S).status_code == 200
        answer = client.post("/quotas/alterations", json=body, timeout=DEADLINE_S)
    assert (answer.status_code, answer.json()["code"]) == (403, "policy-violation")
    assert answer.json()["errors"][0]["code"] == "principal-not-covered"


def test_a_signal_reads_the_file_again_and_a_bad_one_changes_nothing(
    narrowed: RunningService, policy: Path
) -> None:
    process = narrowed.process
    assert process is not None
    names = {"user": f"team-a-{unique()}"}
    assert narrowed.alter(change(names, {P: 500})).status_code == 403
    policy.write_text(POLICY.replace("max: 100", "max: 1000"), encoding="utf-8")
    process.send_signal(signal.SIGHUP)
    until_done(lambda: narrowed.alter(change(names, {P: 500})), "the policy is not read again")
    policy.write_text("rules: [", encoding="utf-8")
    process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: metric(narrowed, 'policy_outdated{cluster="default"}') == 1,
        "the policy is not called outdated",
    )
    assert narrowed.alter(change(names, {P: 600})).status_code == 200
    assert narrowed.alter(change(names, {P: 2000})).status_code == 403
    assert "line 1: not YAML" in narrowed.log_path.read_text()


def test_a_refused_credential_is_a_line_of_the_log_and_counted(narrowed: RunningService) -> None:
    with httpx.Client(base_url=narrowed.url, timeout=DEADLINE_S) as client:
        headers = {"Authorization": "Bearer nobody"}
        refused = [client.get("/quotas", headers=headers), client.post("/quotas/alterations")]
    assert [answer.status_code for answer in refused] == [401, 401]
    ids = {answer.headers["X-Request-Id"] for answer in refused}

    def lines_of_requests() -> list[dict[str, Any]]:
        return [line for line in narrowed.lines() if line.get("request_id") in ids]

    wait_until(lambda: len(lines_of_requests()) == 2, "a request is logged after its answer")
    lines = lines_of_requests()
    assert [(line["authentication"], line["client_address"], line["code"]) for line in lines] == [
        ("bearer-token", "127.0.0.1", "invalid-token"),
        ("none", "127.0.0.1", "unauthenticated"),
    ]
    for line in lines:
        labels = f'method="{line["authentication"]}",reason="{line["code"]}",result="refused"'
        assert metric(narrowed, f"authn_total{{{labels}}}") == 1
