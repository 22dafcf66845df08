"""What another tool prints of a broker becomes a document that the broker meets already."""

from pathlib import Path

from app.localdev.kafka import LocalKafka, run_tool
from tests.integration.client.conftest import Command
from tests.testkit.raw_quotas import RawQuotas, entity_of

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
WORLD = {
    entity_of({"user": None}): {P: 2.0**63},
    entity_of({"user": "CN=o'brien, client-id 'app', OU=x"}): {P: 1e7, C: 1.0},
    entity_of({"user": "alice", "client-id": None}): {R: 12.5},
    entity_of({"user": None, "client-id": "what are you"}): {C: 5e-324},
    entity_of({"client-id": "etl"}): {R: 1.7976931348623157e308},
    entity_of({"ip": "2001:db8::1"}): {"connection_creation_rate": 3.0},
}
TYPES = (["users"], ["clients"], ["users", "clients"], ["ips"])

OTHERS = """\
kind: KafkaUser
metadata: {name: alice}
spec: {quotas: &q {producerByteRate: 1048576}}
---
kind: KafkaClientQuota
spec: {type: USER_ALL_CLIENTS, entity: {user: bob}, configs: {requestPercentage: 50}}
"""


def test_what_kafka_configs_prints_plans_to_nothing(
    command: Command, raw: RawQuotas, broker: LocalKafka, tmp_path: Path
):
    raw.become(WORLD)
    lines = ""
    for types in TYPES:
        options = [word for kind in types for word in ("--entity-type", kind)]
        server = ("--bootstrap-server", broker.bootstrap_servers)
        done = run_tool("kafka.admin.ConfigCommand", *server, "--describe", *options)
        assert done.returncode == 0, done.stdout
        lines += done.stdout
    printed, document = tmp_path / "printed", tmp_path / "document"
    printed.write_text(lines)
    document.write_text(command("import", str(printed), "--complete").out)
    assert command.printed("plan", str(document)).splitlines()[-1] == "No changes."


def test_manifests_are_applied_as_entities_of_the_broker(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    manifests, document = tmp_path / "manifests", tmp_path / "document"
    manifests.write_text(OTHERS)
    document.write_text(command.printed("import", str(manifests), "--complete"))
    assert command("apply", str(document), "--yes").code == 0
    assert raw.everything() == {
        entity_of({"user": "alice"}): {P: 1048576.0},
        entity_of({"user": "bob", "client-id": None}): {R: 50.0},
    }
