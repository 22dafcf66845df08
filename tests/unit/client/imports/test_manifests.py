"""Manifests are read by their kind, as kubectl reads them; none is read as what it is not."""

import json
from pathlib import Path

import pytest

from app.client.errors import UsageError
from tests.unit.client.imports.conftest import C, M, P, R, imported

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
---
kind: KafkaTopic
metadata: {name: t}
"""

ANCHORS = """\
apiVersion: v1
kind: List
items:
- kind: KafkaUser
  metadata: {name: a}
  spec: {authentication: {type: tls}, quotas: &q {producerByteRate: 10, consumerByteRate: 20}}
- kind: KafkaUser
  metadata: {name: b}
  spec: {quotas: *q}
- kind: KafkaUser
  metadata: {name: c}
  spec: {quotas: {<<: *q, producerByteRate: 11, requestPercentage: 40}}
- kind: KafkaUser
  metadata: {name: d}
  spec: {quotas: {<<: [{requestPercentage: 1}, *q, {requestPercentage: 2}]}}
"""

PLUGIN = """\
kind: Kafka
metadata: {name: main}
spec:
  kafka:
    quotas: {type: strimzi, producerByteRate: 1000, consumerByteRate: 2000}
---
kind: KafkaUser
metadata: {name: svc}
spec: {quotas: {producerByteRate: 1048576}}
"""


def test_users_of_strimzi_have_the_names_that_the_broker_sees(tmp_path: Path):
    quotas, lost, _, others = imported(tmp_path, STRIMZI)
    assert quotas == [
        ({"user": None}, {M: 10}),
        ({"user": "CN=bob"}, {C: 2048}),
        ({"user": "alice"}, {P: 1024, R: 55}),
    ]
    assert lost == ["6: {user=alice} other: not a quota key of a broker"]
    assert others == {"KafkaUser": 1, "KafkaTopic": 1}


def test_a_list_of_manifests_is_read_as_json(tmp_path: Path):
    spec = {"quotas": {"consumerByteRate": 3}}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": spec})}
    metadata = {"name": "a", "annotations": applied}
    user = {"kind": "KafkaUser", "metadata": metadata, "spec": spec}
    text = json.dumps({"kind": "List", "items": [user]})
    assert imported(tmp_path, text)[:2] == ([({"user": "a"}, {C: 3})], [])


def test_anchors_and_merges_are_resolved(tmp_path: Path):
    read = imported(tmp_path, ANCHORS)
    assert read.quotas == [
        ({"user": "CN=a"}, {P: 10, C: 20}),
        ({"user": "b"}, {P: 10, C: 20}),
        ({"user": "c"}, {P: 11, C: 20, R: 40}),
        ({"user": "d"}, {P: 10, C: 20, R: 1}),
    ]
    assert read.lost == []


def test_an_alias_in_what_is_not_read_is_not_taken_for_read(tmp_path: Path):
    more = ANCHORS + "- kind: Deployment\n  metadata: {name: e}\n  spec: {deep: *q}\n"
    assert imported(tmp_path, more).lost == [
        "6: items.4.spec.deep.producerByteRate: not read",
        "6: items.4.spec.deep.consumerByteRate: not read",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
            + "\n".join(
                f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "its aliases unfold to over 100,000 nodes",
        ),
        ("kind: &a\n  b: *a\n", "an alias stands for what it is in"),
    ],
)
def test_aliases_that_unfold_without_end_are_refused(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        imported(tmp_path, text)


def test_limits_of_a_quotas_plugin_are_no_client_quotas(tmp_path: Path):
    read = imported(tmp_path, PLUGIN)
    assert read.quotas == [({"user": "svc"}, {P: 1048576})]
    assert read.lost == [
        "5: Kafka main: producerByteRate=1000 is a limit of its quotas plugin, no client quota",
        "5: Kafka main: consumerByteRate=2000 is a limit of its quotas plugin, no client quota",
    ]
    (warning,) = read.warnings
    assert "client quotas that are stored may not apply" in warning


def test_a_quota_callback_in_the_configuration_of_brokers_is_a_plugin(tmp_path: Path):
    config = {
        "client.quota.callback.class": "io.strimzi.kafka.quotas.StaticQuotaCallback",
        "client.quota.callback.static.fetch": 5,
    }
    kafka = {"kind": "Kafka", "metadata": {"name": "m"}, "spec": {"kafka": {"config": config}}}
    read = imported(tmp_path, json.dumps(kafka))
    assert (len(read.lost), len(read.warnings), read.quotas) == (1, 1, [])


def jikkou(kind: str, entity: str, configs: str = "producerByteRate: 1") -> str:
    return (
        "apiVersion: kafka.jikkou.io/v1\nkind: KafkaClientQuota\n"
        f"spec: {{type: {kind}, entity: {{{entity}}}, configs: {{{configs}}}}}\n"
    )


@pytest.mark.parametrize(
    ("kind", "names", "entity"),
    [
        ("USERS_DEFAULT", "", {"user": None}),
        ("USER", "user: a", {"user": "a"}),
        ("USER_CLIENT", "user: a, clientId: b", {"user": "a", "client-id": "b"}),
        ("USER_ALL_CLIENTS", "user: a", {"user": "a", "client-id": None}),
        ("CLIENT", "clientId: b", {"client-id": "b"}),
        ("CLIENTS_DEFAULT", "", {"client-id": None}),
    ],
)
def test_each_type_of_jikkou_is_an_entity(tmp_path: Path, kind: str, names: str, entity: object):
    configs = "requestPercentage: 12.5, producerByteRate: 2048, consumerByteRate: 4096"
    read = imported(tmp_path, jikkou(kind, names, configs))
    assert read.quotas == [(entity, {P: 2048, C: 4096, R: 12.5})]
    assert (read.lost, read.warnings) == ([], [])


def test_a_list_of_jikkou_needs_its_kind_once(tmp_path: Path):
    spec = {"type": "CLIENT", "entity": {"clientId": "a"}, "configs": {"consumerByteRate": 1}}
    removed = {"metadata": {"annotations": {"jikkou.io/delete": True}}, "spec": spec}
    items = [{"spec": spec}, removed, {"spec": None, **spec}]
    read = imported(tmp_path, json.dumps({"kind": "KafkaClientQuotaList", "items": items}))
    assert read.quotas == [({"client-id": "a"}, {C: 1})]
    assert read.lost == [f"1: KafkaClientQuota: type None is none of {', '.join(TYPES)}"]
    assert read.others == {"KafkaClientQuota that is to be removed": 1}


TYPES = ("USERS_DEFAULT", "USER", "USER_CLIENT", "USER_ALL_CLIENTS", "CLIENT", "CLIENTS_DEFAULT")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (jikkou("IP", "user: a"), "type IP is none of USERS_DEFAULT"),
        (jikkou("USER_CLIENT", "user: a"), "its type is USER_CLIENT, and it has no clientId"),
        (jikkou("USER", "user: '{{ values.user }}'"), "spec.entity.user is {{ values.user }}"),
        (jikkou("USER", "user: [a]"), "spec.entity.user is not a name"),
        (jikkou("USER", "user: a", "producerByteRate: '{{ x }}'"), "a template"),
        (jikkou("USER", "user: a", "producerByteRate: {a: 1}"), f"{P} is a mapping"),
        ("kind: KafkaQuota\nspec: {consumerByteRate: 1}\n", "neither user nor client-id"),
        ("kind: KafkaQuota\nmetadata: {name: q}\n", "KafkaQuota q: it has no spec"),
        (
            "kind: TeamQuota\napiVersion: x/v1\nspec: {rate: 1}\n",
            "quotas of this kind are not read",
        ),
        (
            "kind: Kafka\nspec: {kafka: {quotas: {type: x, producerByteRate: 1}}}\n",
            "type x are not",
        ),
        (
            "kind: ConfigMap\napiVersion: v1\ndata: {a: 'producerByteRate: 5'}\n",
            "has quotas in a text",
        ),
        (
            "kind: Job\napiVersion: v1\nspec: {consumer-byte-rate: 5}\n",
            "spec.consumer-byte-rate: not",
        ),
    ],
)
def test_what_is_not_carried_over_is_named(tmp_path: Path, text: str, sentence: str):
    read = imported(tmp_path, text)
    (loss,) = read.lost
    assert sentence in loss
    assert read.quotas == []


def test_a_name_that_the_type_of_jikkou_does_not_take_is_a_warning(tmp_path: Path):
    read = imported(tmp_path, jikkou("CLIENT", "clientId: b, user: a"))
    assert read.quotas == [({"client-id": "b"}, {P: 1})]
    assert read.warnings == ["1: KafkaClientQuota: type CLIENT takes no user, so a is not"]


def test_quotas_of_aiven_call_the_default_so(tmp_path: Path):
    text = """\
apiVersion: aiven.io/v1alpha1
kind: KafkaQuota
metadata: {name: q}
spec: {project: p, user: user-a, clientId: default, consumerByteRate: 1000, requestPercentage: 50}
---
apiVersion: kafka.aiven.io/v1beta1
kind: KafkaQuota
spec: {user: default, producerByteRate: 7, consumerByteRate: null}
"""
    read = imported(tmp_path, text)
    assert read.quotas == [
        ({"user": None}, {P: 7}),
        ({"client-id": None, "user": "user-a"}, {C: 1000, R: 50}),
    ]
    assert read.lost == []


NS4KAFKA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: orders}
spec: {count/topics: 10, user/consumer_byte_rate: 204800, user/producer_byte_rate: "102400"}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: pods, namespace: other}
spec: {hard: {pods: 4}}
"""
NAMESPACE = "---\nkind: Namespace\nmetadata: {name: orders}\nspec: {kafkaUser: orders-user}\n"


def test_rates_of_ns4kafka_are_those_of_the_user_of_the_namespace(tmp_path: Path):
    read = imported(tmp_path, NS4KAFKA + NAMESPACE)
    assert read.quotas == [({"user": "orders-user"}, {C: 204800, P: 102400})]
    assert read.lost == []
    assert read.others == {"ResourceQuota without rates of users": 1, "Namespace": 1}


def test_without_its_namespace_a_rate_of_ns4kafka_is_of_nobody(tmp_path: Path):
    read = imported(tmp_path, NS4KAFKA)
    assert read.quotas == []
    (loss,) = read.lost
    assert "ResourceQuota q: user/consumer_byte_rate, user/producer_byte_rate" in loss


@pytest.mark.parametrize("value", ["010", "0x10", "1_000", "1:30", "\u0665", '""', "-1", "0"])
def test_digits_that_tools_read_differently_are_not_read(tmp_path: Path, value: str):
    spec = f"{{quotas: {{producerByteRate: {value}}}}}"
    read = imported(tmp_path, f"kind: KafkaUser\nmetadata: {{name: a}}\nspec: {spec}\n")
    assert (read.quotas, len(read.lost)) == ([], 1)


def test_a_number_with_commas_is_not_read_as_its_first_digits(tmp_path: Path):
    read = imported(
        tmp_path,
        "kind: KafkaUser\nmetadata: {name: a}\n"
        "spec: {quotas: {producerByteRate: 1,048,576, requestPercentage: 5}}\n",
    )
    assert (read.quotas, read.lost) == (
        [],
        ["3: {user=a}: a comma in a number separates members in YAML, so no value is certain"],
    )
