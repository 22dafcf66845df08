"""``GET /users/scram-credentials`` on a real broker."""

import httpx
from confluent_kafka.admin import ScramMechanism

from app.localdev.kafka import LocalKafka
from tests.testkit.accounts import scram_credentials
from tests.testkit.patience import wait_until
from tests.testkit.service import RunningService

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
