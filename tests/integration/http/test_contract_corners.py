"""Corners of the contract that are met from outside only: a process, its settings, its answers."""

import socket
from pathlib import Path

import httpx
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from tests.integration.http.service_calls import C, P, change
from tests.testkit.kafka import PLAIN_USERS, unique
from tests.testkit.service import (
    DEADLINE_S,
    RunningService,
    run_to_its_end,
    running_service,
    write_tokens,
)

_ELSEWHERE = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://quotas:hidden@127.0.0.1:1/quotas",
    "QUOTAS_PORT": "0",
    "QUOTAS_TLS_TERMINATED_UPSTREAM": "true",
}
"""Addresses where nothing answers: a start-up that is refused asks nobody."""


def serve_in_vain(folder: Path, **settings: str) -> str:
    """Serve with settings that cannot be used, and return what is printed about them."""
    environ = {**_ELSEWHERE, "QUOTAS_TOKENS_FILE": str(write_tokens(folder)), **settings}
    done = run_to_its_end("serve", environ, folder)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_taken_port_stops_the_start_with_one_sentence(tmp_path: Path, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        output = serve_in_vain(tmp_path, QUOTAS_HOST=host, QUOTAS_PORT=port)
    assert output.startswith(f"QUOTAS_PORT: {host}:{port} ")
    assert output.count("\n") == 1


def test_a_service_whose_account_may_not_read_the_acls_is_not_ready(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path
) -> None:
    account = {
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_username": "nobody",
        "kafka_sasl_password": PLAIN_USERS["nobody"],
    }
    brokers, database = broker.sasl_bootstrap_servers, postgres.service_url
    with running_service(tmp_path, brokers, database, **account) as service:
        refused = service.api("bob").get("/quotas")
        assert (refused.status_code, refused.json()["code"]) == (503, "acl-source-unreachable")
        for path in ("/readyz", "/readyz?for=write"):
            answer = httpx.get(f"{service.url}{path}", timeout=DEADLINE_S)
            assert answer.status_code == 503
            assert answer.json()["problems"]["acls"] == refused.json()["detail"]
    output = refused.json()["detail"]
    assert output.count("The ACLs of the cluster could not be read") == 1
    assert "ALLOW DESCRIBE on Cluster kafka-cluster" in output


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_entity_that_our_rules_refuse_has_the_values_that_stay(
    service: RunningService, validate_only: bool
) -> None:
    stays, changes, unknown = ({"user": unique()} for _ in range(3))
    assert service.alter(change(stays, {P: 7})).status_code == 200
    answer = service.alter(
        change(stays, {P: 0, C: 5}),
        change(changes, {P: 5}),
        change(unknown, {C: 0.5}),
        change({"ip": "a.host.name"}, {"connection_creation_rate": 5}),
        all_or_nothing=False,
        validate_only=validate_only,
    )
    assert answer.status_code == 207
    done = answer.json()["results"]
    assert [(item["outcome"], item["before"], item["after"]) for item in done] == [
        ("refused", {P: 7}, {P: 7}),
        ("validated" if validate_only else "applied", {}, {P: 5}),
        ("refused", {}, {}),
        ("refused", {}, {}),
    ]
    assert service.api().get(answer.headers["Location"]).json()["results"] == done
