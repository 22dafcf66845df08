"""``lint`` against the real service and a real broker, and the credentials that it asks for."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import ScramMechanism

from app.localdev.kafka import LocalKafka
from tests.integration.client.conftest import Command
from tests.testkit.accounts import scram_credentials
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, entity_of
from tests.testkit.service import RunningService

P = "producer_byte_rate"
USER = "lint-existing"
UNKNOWN = "lint-unknown"
"""Other tests let other users have credentials."""


@pytest.fixture
def existing_user(broker: LocalKafka) -> Iterator[str]:
    """A user with SCRAM credentials."""
    with scram_credentials(broker, (USER, ScramMechanism.SCRAM_SHA_512, 4096)):
        yield USER


def test_each_kind_of_finding_is_printed(command: Command, raw: RawQuotas, existing_user: str):
    raw.become(
        {
            entity_of({"user": None}): {P: 5.0},
            entity_of({"client-id": "etl"}): {P: 6.0},
            entity_of({"user": existing_user}): {P: 5.0},
            entity_of({"user": UNKNOWN}): {P: float("nan")},
            entity_of({"user": "User:alice"}): {P: 7.0},
        }
    )

    def found() -> dict[str, object]:
        answer = command("lint", "--output=json", "--broker-user=kafka", principal="bob")
        findings = json.loads(answer.out)["findings"]
        return {finding["rule"]: finding["entity"] for finding in findings}

    wanted = {
        "catches-brokers": {"user": None},
        "shadowed": {"client-id": "etl"},
        "redundant": {"user": existing_user},
        "not-a-number": {"user": UNKNOWN},
        "no-credentials": {"user": UNKNOWN},
        "user-prefix": {"user": "User:alice"},
    }
    wait_until(lambda: found() == wanted)


EVERY_USER, EVERY_CLIENT = {"user": None}, {"client-id": None}


@pytest.mark.parametrize(
    ("entities", "summary", "codes"),
    [
        ([], "0 warnings, 0 hints.", (0, 0)),
        ([EVERY_USER, EVERY_USER | EVERY_CLIENT], "0 warnings, 1 hint.", (1, 0)),
        ([EVERY_USER, EVERY_CLIENT], "1 warning, 0 hints.", (1, 1)),
    ],
)
def test_the_exit_code_tells_findings_from_none(
    command: Command,
    raw: RawQuotas,
    entities: list[dict[str, None]],
    summary: str,
    codes: tuple[int, int],
):
    raw.become({entity_of(names): {P: float(n)} for n, names in enumerate(entities, start=5)})
    wait_until(lambda: command("lint").out.splitlines()[-1] == summary)
    assert (command("lint").code, command("lint", "--fail-on=warnings").code) == codes


def test_what_is_found_is_gone_when_its_line_has_run(command: Command, raw: RawQuotas):
    raw.become({entity_of({"user": None}): {P: 5.0}, entity_of({"client-id": "a,b"}): {P: 6.0}})
    (finding,) = json.loads(command("lint", "--output=json").out)["findings"]
    assert finding["fixes"] == [
        rf"kafka-client-quotas --alter --names 'client-id=a\,b' --delete {P}"
    ]
    assert "6 -> unset" in command.altered("--alter", "--names", r"client-id=a\,b", "--delete", P)
    done = command("lint")
    assert (done.code, done.out) == (0, "0 warnings, 0 hints.\n")
    assert done.err == "Not judged: catches-brokers; --broker-user names their users.\n"


def test_the_lines_for_a_literal_default_move_its_value_to_the_default(
    command: Command, raw: RawQuotas
):
    raw.become({entity_of({"user": "<default>"}): {P: 5.0}, entity_of({"user": "*"}): {P: 5.0}})

    def findings() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(command("lint", "--output=json").out)["findings"]
        return [finding for finding in found if finding["rule"] == "literal-default"]

    wait_until(lambda: len(findings()) == 2)
    for line in [line for finding in findings() for line in finding["fixes"]]:
        assert command(*shlex.split(line)[1:]).code == 0
    assert command.printed("--describe") == f"{{user=<default>}}\n{P}=5\n"


PATH = "/users/scram-credentials"


def test_users_are_listed_with_mechanism_and_iterations_only(
    service: RunningService, broker: LocalKafka
):
    def listed() -> list[object]:
        answer = service.api("bob").get(PATH)
        assert answer.status_code == httpx.codes.OK
        return [user for user in answer.json()["users"] if user["user"].startswith("scram-")]

    wanted = [
        {
            "user": "scram-alice",
            "credentials": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
                {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
            ],
        },
        {"user": "scram-bob", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]},
    ]
    with scram_credentials(
        broker,
        ("scram-bob", ScramMechanism.SCRAM_SHA_512, 4096),
        ("scram-alice", ScramMechanism.SCRAM_SHA_256, 8192),
        ("scram-alice", ScramMechanism.SCRAM_SHA_512, 4096),
    ):
        wait_until(lambda: listed() == wanted)


def test_only_who_may_describe_the_cluster_is_answered(service: RunningService, broker: LocalKafka):
    answer = service.api("mallory").get(PATH)
    assert answer.status_code == httpx.codes.FORBIDDEN
    assert "lacks DESCRIBE on the Cluster" in answer.json()["detail"]
    assert httpx.get(f"{service.url}{PATH}", timeout=30).status_code == httpx.codes.UNAUTHORIZED


def test_a_parameter_is_refused(service: RunningService):
    answer = service.api("bob").get(PATH, params={"user": "alice"})
    assert answer.status_code == httpx.codes.BAD_REQUEST
