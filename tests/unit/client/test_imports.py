"""What other tools store becomes a document, and what does not is reported."""

import json
from pathlib import Path

import pytest

from app.client.cli import main
from app.client.commands.imports import read_foreign
from app.client.documents import read_document
from app.client.errors import UsageError

P, C, R, I = (  # noqa: E741
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
)

KAFKA_CONFIGS = """\
Quota configs for user-principal 'alice' are producer_byte_rate=1024.0, request_percentage=12.5
Quota configs for user-principal 'CN=o'brien, client-id 'app', OU=x' are producer_byte_rate=1.0E7
Quota configs for user-principal 'alice', client-id 'what are you' are consumer_byte_rate=2.0
Quota configs for the default user-principal, client-id 'app' are consumer_byte_rate=3.0
Quota configs for user-principal 'alice', the default client-id are consumer_byte_rate=4.0
Quota configs for the default user-principal, the default client-id are consumer_byte_rate=5.0
Quota configs for the default user-principal are producer_byte_rate=9.223372036854776E18
Quota configs for client-id 'etl' are request_percentage=NaN, producer_byte_rate=6.0
Quota configs for the default ip are connection_creation_rate=7.0
Quota configs for ip '1.2.3.4' are connection_creation_rate=8.0
Configs for default client-id are producer_byte_rate=1024,consumer_byte_rate=2048
Configs for user-principal 'old' are SCRAM-SHA-256=salt=c2Vj,stored_key=cmV0,iterations=4096,request_percentage=9
SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096
Dynamic configs for topic t are:
"""  # noqa: E501

RPK = """\
quotas:
    - entity:
        - name: alice
          type: user
        - name: <default>
          type: client-id
      values:
        - key: producer_byte_rate
          value: "1024"
    - entity:
        - name: team-
          type: client-id-prefix
      values:
        - key: consumer_byte_rate
          value: "2"
"""

STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: alice, labels: {strimzi.io/cluster: main}}
spec:
  authentication: {type: scram-sha-512}
  quotas: {producerByteRate: 1024, requestPercentage: 55, other: 1}
---
kind: KafkaUser
metadata: {name: bob}
spec: {authentication: {type: tls}, quotas: {consumerByteRate: 2048}}
---
kind: KafkaUser
metadata: {name: carol}
spec: {}
---
kind: Kafka
metadata: {name: main}
spec: {kafka: {quotas: {type: kafka, controllerMutationRate: 10}}}
"""

TERRAFORM = """{
"version": 4, "terraform_version": "1.9.0", "lineage": "x", "resources": [
  {"type": "kafka_quota", "instances": [
    {"attributes": {"entity_name": "etl", "entity_type": "client-id",
      "config": {"consumer_byte_rate": "4000000", "producer_byte_rate": 3500000}}},
    {"attributes": {"entity_name": "", "entity_type": "ip",
      "config": {"connection_creation_rate": "5"}}}]},
  {"type": "kafka_topic", "instances": [{"attributes": {"name": "t"}}]}]
}"""

TERRAFORM_SHOW = """{
"terraform_version": "1.9.0", "values": {"root_module": {"child_modules": [{"resources": [
  {"type": "kafka_quota", "values": {"entity_name": "alice", "entity_type": "user",
    "config": {"request_percentage": "1.5"}}}]}]}}
}"""


def imported(folder: Path, text: str, source: str | None = None) -> tuple[list[object], list[str]]:
    file = folder / "foreign"
    file.write_text(text)
    collected = read_foreign(str(file), source)
    lost = [sentence.removeprefix(f"{file}:") for sentence in collected.lost]
    return [(quota["entity"], quota["values"]) for quota in collected.quotas()], lost


def test_every_line_of_kafka_configs_is_read_or_reported(tmp_path: Path):
    quotas, lost = imported(tmp_path, KAFKA_CONFIGS)
    assert quotas == [
        ({"ip": None}, {I: 7}),
        ({"ip": "1.2.3.4"}, {I: 8}),
        ({"client-id": None}, {P: 1024, C: 2048}),
        ({"client-id": "etl"}, {P: 6}),
        ({"user": None}, {P: 9223372036854775807}),
        ({"client-id": None, "user": None}, {C: 5}),
        ({"client-id": "app", "user": None}, {C: 3}),
        ({"user": "CN=o'brien, client-id 'app', OU=x"}, {P: 10000000}),
        ({"user": "alice"}, {P: 1024, R: 12.5}),
        ({"client-id": None, "user": "alice"}, {C: 4}),
        ({"client-id": "what are you", "user": "alice"}, {C: 2}),
        ({"user": "old"}, {R: 9}),
    ]
    assert lost == [
        "8: {client-id=etl} request_percentage=NaN: not a number over 0",
        "12: the SCRAM credentials of old are no quota",
        "13: the SCRAM credentials of alice are no quota",
        "14: skipped: not a quota line",
    ]


def test_a_default_of_rpk_is_the_default(tmp_path: Path):
    assert imported(tmp_path, RPK) == (
        [({"client-id": None, "user": "alice"}, {P: 1024})],
        ["10: client-id-prefix team-: Kafka has no such entity"],
    )


def test_users_of_strimzi_have_the_names_that_the_broker_sees(tmp_path: Path):
    quotas, lost = imported(tmp_path, STRIMZI)
    assert quotas == [
        ({"user": None}, {"controller_mutation_rate": 10}),
        ({"user": "CN=bob"}, {C: 2048}),
        ({"user": "alice"}, {P: 1024, R: 55}),
    ]
    assert lost == ["6: other is no quota of clients", "12: KafkaUser carol has no quotas"]


def test_a_list_of_manifests_is_read_as_json(tmp_path: Path):
    spec = {"quotas": {"consumerByteRate": 3}}
    user = {"kind": "KafkaUser", "metadata": {"name": "a"}, "spec": spec}
    text = json.dumps({"kind": "List", "items": [user]})
    assert imported(tmp_path, text) == ([({"user": "a"}, {C: 3})], [])


def test_a_terraform_state_is_read_in_both_shapes(tmp_path: Path):
    assert imported(tmp_path, TERRAFORM) == (
        [({"ip": None}, {I: 5}), ({"client-id": "etl"}, {C: 4000000, P: 3500000})],
        ["1: 1 resources of other types have no quotas"],
    )
    assert imported(tmp_path, TERRAFORM_SHOW) == ([({"user": "alice"}, {R: 1.5})], [])


def test_two_values_for_one_key_are_reported_and_the_first_is_used(tmp_path: Path):
    line = "Quota configs for client-id 'etl' are producer_byte_rate="
    quotas, lost = imported(tmp_path, f"{line}6.0\n{line}6.0\n{line}7.0\n")
    assert quotas == [({"client-id": "etl"}, {P: 6})]
    assert lost == ["3: {client-id=etl} producer_byte_rate=7: it was 6 before, which stays"]


def test_no_secret_is_printed_and_the_document_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, document = tmp_path / "foreign", tmp_path / "document"
    file.write_text(KAFKA_CONFIGS)
    assert main(["import", str(file), "--complete"]) == 1
    printed = capsys.readouterr()
    assert not {"c2Vj", "cmV0"} & {*printed.out.split("="), *printed.err.split("=")}
    document.write_text(printed.out)
    assert len(read_document(str(document)).quotas) == 12


@pytest.mark.parametrize("text", ["", "nothing", "{}", "quotas: []\n"])
def test_what_looks_like_no_tool_is_refused(tmp_path: Path, text: str):
    with pytest.raises(UsageError):
        imported(tmp_path, text)
