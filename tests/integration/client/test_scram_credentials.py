"""``GET /users/scram-credentials`` on a real broker."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from app.localdev.kafka import LocalKafka
from tests.testkit.patience import wait_until
from tests.testkit.service import DEADLINE_S, RunningService

PATH = "/users/scram-credentials"
SECRET = b"scram-secret-of-the-test"

CREDENTIALS = [
    ("scram-bob", ScramMechanism.SCRAM_SHA_512, 4096),
    ("scram-alice", ScramMechanism.SCRAM_SHA_256, 8192),
    ("scram-alice", ScramMechanism.SCRAM_SHA_512, 4096),
]


def alter(client: AdminClient, changes: list[UserScramCredentialAlteration]) -> None:
    for future in client.alter_user_scram_credentials(changes).values():
        future.result(DEADLINE_S)


@pytest.fixture
def users(broker: LocalKafka) -> Iterator[None]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for user, mechanism, iterations in CREDENTIALS:
        info = ScramCredentialInfo(mechanism, iterations)
        alter(client, [UserScramCredentialUpsertion(user, info, SECRET)])
    yield
    for user, mechanism, _ in CREDENTIALS:
        alter(client, [UserScramCredentialDeletion(user, mechanism)])


def test_users_are_listed_with_mechanism_and_iterations_only(service: RunningService, users: None):
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
    wait_until(lambda: listed() == wanted)


def test_only_who_may_describe_the_cluster_is_answered(service: RunningService, broker: LocalKafka):
    answer = service.api("mallory").get(PATH)
    assert answer.status_code == httpx.codes.FORBIDDEN
    assert "lacks DESCRIBE on the Cluster" in answer.json()["detail"]
    assert httpx.get(f"{service.url}{PATH}", timeout=30).status_code == httpx.codes.UNAUTHORIZED


def test_a_parameter_is_refused(service: RunningService):
    answer = service.api("bob").get(PATH, params={"user": "alice"})
    assert answer.status_code == httpx.codes.BAD_REQUEST
