"""Real brokers with quota callbacks: what limits a client is what resolve says."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import NewTopic

from app.domain.callbacks.strimzi_static import STRIMZI_STATIC
from app.localdev.jars import STRIMZI_QUOTAS_LOCK, jars_of
from app.localdev.kafka import LocalKafka
from app.localdev.kafka_admin import silent_admin
from app.localdev.postgres import LocalPostgres
from app.localdev.traffic import TOPIC, TrafficClient, prepare_traffic
from tests.faults.http.conftest import fake_kafka_with_rights
from tests.testkit.accounts import allow
from tests.testkit.callbacks import (
    Plugin,
    broker_with,
    built_callbacks,
    callback_file,
    is_near,
    node_with,
    traffic,
    wait_for,
)
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, acl, running_service

P = "producer_byte_rate"
LIMIT = 100_000
STATIC = "client.quota.callback.static"


def resolved(service: RunningService, user: str, client_id: str = "") -> dict[str, Any]:
    query = {"user": user, "client-id": client_id, "max_age_ms": 0, "explain": True}
    answer = service.api().get("/quotas/resolve", params=query)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@pytest.fixture(scope="module")
def strimzi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    properties = {
        f"{STATIC}.produce": str(LIMIT),
        f"{STATIC}.excluded.principal.name.list": "User:boss",
        f"{STATIC}.kafka.admin.bootstrap.servers": "127.0.0.1:1",
    }
    plugin = Plugin(STRIMZI_STATIC, tuple(jars_of(STRIMZI_QUOTAS_LOCK)), properties)
    with broker_with(plugin, tmp_path_factory.mktemp("strimzi")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def static_service(
    strimzi: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    _, url = migrated_database(postgres, "strimzi")
    folder = tmp_path_factory.mktemp("static-service")
    options = {"produce": LIMIT, "excluded_principals": ["User:boss"]}
    path = callback_file(folder, STRIMZI_STATIC, "strimzi-static", options)
    with running_service(
        folder, strimzi.bootstrap_servers, url, callback_file=str(path)
    ) as service:
        yield service


def store(service: RunningService, names: dict[str, str | None], value: int) -> list[str]:
    """Set what an entity may produce; return the warnings of the result."""
    answer = service.alter({"entity": names, "ops": [{"key": P, "value": value}]})
    assert answer.status_code == 200, answer.text
    (result,) = answer.json()["results"]
    assert result["outcome"] == "applied"
    warnings: list[str] = result.get("warnings", [])
    return warnings


def test_resolve_says_what_strimzi_s_plugin_limits(static_service: RunningService):
    assert any(
        warning.startswith("ignored-by-callback: ")
        for warning in store(static_service, {"user": "alice"}, 1000)
    )
    for user in ("alice", "bob"):
        document = resolved(static_service, user, "etl")
        assert document["authoritative"]
        assert document["callback"] == {"class": STRIMZI_STATIC, "model": "strimzi-static"}
        quota = document["quotas"][P]
        assert (quota["value"], quota["source"]) == (LIMIT, None)
        assert quota["shared_by"] == {"quota.type": "PRODUCE"}
    assert resolved(static_service, "boss")["quotas"][P]["value"] is None


def test_what_would_be_is_asked_of_the_callback_too(static_service: RunningService):
    body = {
        "identities": [{"user": "alice"}, {"ip": "10.0.0.1"}],
        "alterations": [{"entity": {"user": "alice"}, "ops": [{"key": P, "value": 5000}]}],
        "max_age_ms": 0,
    }
    answer = static_service.api().post("/quotas/resolve", json=body).json()
    alice, address = answer["results"]
    assert [each["quotas"][P]["value"] for each in (alice, alice["proposed"])] == [LIMIT, LIMIT]
    assert address["quotas"]["connection_creation_rate"]["shared_by"] == {"ip": "10.0.0.1"}
    assert [each["code"] for each in answer["warnings"]] == ["ignored-by-callback"]


CUSTOM = "com.example.Quotas"
FAILING = "tests.testkit.callbacks:Failing"


def test_what_a_class_of_your_own_raises_is_an_answer_that_names_it(
    scripted_url: str, tmp_path: Path
):
    path = callback_file(tmp_path, CUSTOM, FAILING, {})
    with fake_kafka_with_rights() as cluster:
        cluster.callback = CUSTOM
        with running_service(
            tmp_path, cluster.bootstrap_servers, scripted_url, callback_file=str(path)
        ) as service:
            assert store(service, {"user": "alice"}, LIMIT) == []
            document = resolved(service, "alice")
            assert document["callback"] == {"class": CUSTOM, "model": FAILING}
            assert document["authoritative"]
            quota = document["quotas"][P]
            assert (quota["value"], quota["source"]) == (LIMIT, None)
            assert quota["shared_by"] == {"whose": "User:alice"}
            for explain in ("true", "false"):
                query = {"user": "mallory", "explain": explain}
                answer = service.api().get("/quotas/resolve", params=query)
                problem = answer.json()
                assert (answer.status_code, problem["code"]) == (500, "callback-failed")
                sentence = (
                    f"{FAILING} failed: quota_limit raised LookupError: not a day for mallory"
                )
                assert sentence in problem["detail"]
            identities = [{"user": "alice"}, {"user": "mallory"}]
            answer = service.api().post("/quotas/resolve", json={"identities": identities})
            assert (answer.status_code, answer.json()["code"]) == (500, "callback-failed")
            assert any("failed" in line["event"] for line in service.lines())


@pytest.mark.long
def test_strimzi_s_plugin_limits_all_who_are_not_excluded_together(
    strimzi: LocalKafka, static_service: RunningService
):
    """What is stored for alice, a hundredth of that, is not enforced."""
    store(static_service, {"user": "alice"}, 1000)
    assert resolved(static_service, "alice")["quotas"][P]["value"] == LIMIT
    alice, bob = (TrafficClient(user, "etl", 300_000) for user in ("alice", "bob"))
    shared = 'user="quota.type:PRODUCE"'
    with traffic(strimzi, alice, bob):
        wait_for(strimzi, lambda seen: list(seen) == [shared] and is_near(seen[shared], LIMIT))
    with traffic(strimzi, TrafficClient("boss", "etl", 400_000)):
        wait_for(
            strimzi,
            lambda seen: any(rate > 3 * LIMIT for tags, rate in seen.items() if tags != shared),
        )


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_callbacks(tmp_path_factory.mktemp("jar"))


GROUPS = "GroupQuotaCallback"


@pytest.mark.long
def test_the_users_of_a_group_are_throttled_together(
    jar: Path, postgres: LocalPostgres, tmp_path: Path
):
    members = tmp_path / "groups.properties"
    members.write_text("user.alice=ops\nuser.bob=ops\n")
    (tmp_path / "groups.yaml").write_text(yaml.safe_dump({"ops": {"users": ["alice", "bob"]}}))
    path = callback_file(tmp_path, GROUPS, "groups", {"groups_file": "groups.yaml"})
    _, url = migrated_database(postgres, "groups")
    plugin = Plugin(GROUPS, (jar,), {"client.quota.callback.groups.file": str(members)})
    with (
        broker_with(plugin, tmp_path / "broker") as kafka,
        running_service(tmp_path, kafka.bootstrap_servers, url, callback_file=str(path)) as service,
    ):
        assert store(service, {"user": "group:ops"}, LIMIT) == []
        assert store(service, {"user": "carol"}, LIMIT // 2) == []
        (warning,) = store(service, {"user": "alice"}, LIMIT * 5)
        assert warning.startswith("ignored-by-callback: ")
        tags = ({"group": "ops"}, {"group": "ops"}, {"user": "carol", "client-id": ""})
        limits = (LIMIT, LIMIT, LIMIT // 2)
        for user, shared_by, limit in zip(("alice", "bob", "carol"), tags, limits, strict=True):
            document = resolved(service, user, "etl")
            assert document["authoritative"]
            quota = document["quotas"][P]
            assert (quota["shared_by"], quota["value"]) == (shared_by, limit)
        clients = [TrafficClient(user, "etl", 300_000) for user in ("alice", "bob", "carol")]
        with traffic(kafka, *clients):
            wait_for(
                kafka,
                lambda seen: (
                    is_near(seen.get('user="group:ops"'), LIMIT)
                    and is_near(seen.get('user="carol"'), LIMIT // 2)
                    and not any("alice" in each or "bob" in each for each in seen)
                ),
            )


SHARES = "PartitionShareQuotaCallback"
REPLICAS = [[2, 1], [2, 3], [3, 1], [1, 3]]


@pytest.mark.long
def test_each_broker_allows_its_share_of_the_leaders(
    jar: Path, postgres: LocalPostgres, tmp_path: Path
):
    topics = tmp_path / "topics.properties"
    topics.write_text(f"user.alice={TOPIC}\n")
    (tmp_path / "topics.yaml").write_text(yaml.safe_dump({"users": {"alice": [TOPIC]}}))
    path = callback_file(tmp_path, SHARES, "partition-share", {"topics_file": "topics.yaml"})
    _, url = migrated_database(postgres, "shares")
    plugin = Plugin(SHARES, (jar,), {"client.quota.callback.topics.file": str(topics)})
    with ExitStack() as stack:
        first = node_with(plugin, tmp_path / "node-1")
        nodes = {1: first} | {
            number: node_with(plugin, tmp_path / f"node-{number}", first, number)
            for number in (2, 3)
        }
        for node in nodes.values():
            stack.enter_context(node)
        admin = silent_admin(first.bootstrap_servers)
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(nodes))
        topic = NewTopic(TOPIC, replica_assignment=REPLICAS, num_partitions=len(REPLICAS))
        admin.create_topics([topic])[TOPIC].result()
        allow(first, acl("alice", "ALTER_CONFIGS"), acl("alice", "DESCRIBE_CONFIGS"))
        prepare_traffic(first.bootstrap_servers)
        service = stack.enter_context(
            running_service(tmp_path, first.bootstrap_servers, url, callback_file=str(path))
        )
        store(service, {"user": "alice"}, 4 * LIMIT)

        def by_broker() -> Any:
            return resolved(service, "alice", "etl")["quotas"][P].get("by_broker")

        def each_is_spent() -> None:
            for number, limit in by_broker().items():
                wait_for(
                    nodes[int(number)], lambda seen, at=limit: is_near(seen.get('user="alice"'), at)
                )

        with traffic(first, TrafficClient("alice", "etl", 12 * LIMIT)):
            wait_until(lambda: by_broker() == {"1": LIMIT, "2": 2 * LIMIT, "3": LIMIT})
            each_is_spent()
            nodes[2].stop()
            wait_until(lambda: by_broker() == {"1": 2 * LIMIT, "3": 2 * LIMIT})
            each_is_spent()
        assert resolved(service, "alice", "etl")["authoritative"]
