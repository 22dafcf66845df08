"""A file is read by the reader that it looks like, and none comes out empty without a word."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.client.cli import main
from app.client.errors import UsageError
from app.client.imports.formats import FORMATS
from app.domain.quota_keys import QUOTA_KEY_RULES
from tests.unit.client.imports.conftest import P, imported

LINE = "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0\r\n"
ALICE = [({"user": "alice"}, {P: 1024})]


@pytest.mark.parametrize(
    "content",
    [
        LINE.encode(),
        LINE.encode("utf-8-sig"),
        LINE.encode("utf-16"),
        b"\xfe\xff" + LINE.encode("utf-16-be"),
    ],
)
def test_an_encoding_that_the_file_names_is_read(tmp_path: Path, content: bytes):
    assert imported(tmp_path, content).quotas == ALICE


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (LINE.encode("utf-16-le"), "iconv -f UTF-16LE -t UTF-8"),
        (LINE.encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8"),
        (LINE.replace("alice", "zoë").encode("latin-1"), ":1: this is not UTF-8; iconv -f LATIN1"),
    ],
)
def test_any_other_encoding_is_refused_with_the_command_that_helps(
    tmp_path: Path, content: bytes, command: str
):
    with pytest.raises(UsageError, match=command):
        imported(tmp_path, content)


EMPTY = (
    "",
    "\n",
    "# nothing\n---\n",
    "{}",
    "[]",
    "quotas: []\n",
    '{"quotas":[]}',
    '{"quotas": null}',
    "apiVersion: v1\nitems: []\nkind: List\n",
    "apiVersion: v1\nkind: KafkaUserList\nitems: []\n",
    '{"format_version":"1.0"}',
    '{"format_version":"1.0","terraform_version":"1.9.5","values":{"root_module":{}}}',
    '{"version": 4, "terraform_version": "1.9.0", "resources": []}',
    "- kafka_quotas: {entries: []}\n",
    "context: c\nprojects: []\n",
    "terraform {\n}\n",
)


@pytest.mark.parametrize("text", EMPTY)
def test_nothing_in_is_an_empty_document_out(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "foreign"
    file.write_text(text)
    assert main(["import", str(file), "--complete"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "apiVersion: quotas/v1\nquotas: []\n"
    assert printed.err == f"{file} has no quotas; the document is empty.\n"


@pytest.mark.parametrize("source", sorted({*FORMATS} - {"kafka-configs"}))
@pytest.mark.parametrize("text", ["", "[]", "{}\n---\n"])
def test_nothing_is_nothing_in_every_format(tmp_path: Path, source: str, text: str):
    assert imported(tmp_path, text, source) == ([], [], [], {})


@pytest.mark.parametrize("text", ["nothing", "a: 1\n", "- 5\n", '[{"a": 1}]', "quotas: 5\n"])
def test_what_looks_like_no_tool_is_refused(tmp_path: Path, text: str):
    with pytest.raises(UsageError, match="looks like none of"):
        imported(tmp_path, text)


@pytest.mark.parametrize("source", ["kafka-configs", "terraform", "rpk", "ansible", "julie"])
def test_a_file_is_not_read_as_what_it_does_not_look_like(tmp_path: Path, source: str):
    with pytest.raises(UsageError, match=f"does not look like {source}"):
        imported(tmp_path, "kind: KafkaUser\nmetadata: {name: a}\n", source)


def test_complete_counts_quotas_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = """\
kind: KafkaUser
metadata: {name: b}
spec: {authentication: {type: scram-sha-512}}
---
kind: KafkaTopic
metadata: {name: t}
spec: {partitions: 3}
---
kind: KafkaUser
metadata: {name: a}
spec: {quotas: {producerByteRate: 8}}
"""
    file = tmp_path / "foreign"
    file.write_text(text)
    assert main(["import", str(file), "--complete"]) == 0
    assert capsys.readouterr().err == "Without quotas: 1 KafkaTopic, 1 KafkaUser.\n"
    file.write_text(f"{text}---\nkind: KafkaQuota\nspec: {{producerByteRate: 5}}\n")
    assert main(["import", str(file)]) == 0
    assert main(["import", str(file), "--complete"]) == 1


def test_where_everything_is_lost_the_exit_code_says_so(tmp_path: Path):
    file = tmp_path / "foreign"
    file.write_text("kind: KafkaQuota\nspec: {producerByteRate: 5}\n")
    assert main(["import", str(file)]) == 1


def test_names_that_another_tool_reads_otherwise_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    names = ("<default>", "*", "tenant-*", "User:alice")
    quotas = [{"entity": {"user": name}, "values": {P: 1}} for name in names]
    file = tmp_path / "foreign"
    file.write_text(json.dumps({"quotas": quotas}))
    assert main(["import", str(file)]) == 0
    printed = capsys.readouterr().err
    assert printed.startswith("Please look at (4):\n")
    assert all(f"'{name}'" in printed for name in names)


@pytest.mark.parametrize("value", ["1.7976931348623157E308", "1E+100", "4.9E-324"])
def test_a_value_of_any_size_is_carried_over_as_it_is(tmp_path: Path, value: str):
    line = f"Quota configs for user-principal 'a' are producer_byte_rate={value}\n"
    ((_, values),) = imported(tmp_path, line).quotas
    assert isinstance(values, dict)
    assert values == {P: float(value)}
    assert math.isfinite(values[P])


keys = st.sampled_from(
    [*QUOTA_KEY_RULES, "producerByteRate", "consumer-byte-rate", "RequestPercentage"]
)
words = st.sampled_from(
    ["spec", "quotas", "values", "entity", "config", "user", "kind", "resources", "attributes"]
)
leaves = st.none() | st.booleans() | st.sampled_from([5, "5", "x", "{{ y }}", "User:a"])
trees = st.recursive(
    leaves,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(words | keys, below, max_size=4),
    max_leaves=12,
)
roots = st.sampled_from(
    [
        {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaUser", "metadata": {"name": "a"}},
        {"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka"},
        {"apiVersion": "v1", "kind": "List"},
        {"kind": "KafkaClientQuota"},
        {"kind": "KafkaQuota"},
        {"kind": "ResourceQuota"},
        {"apiVersion": "v1", "kind": "Deployment"},
        {"terraform_version": "1.9.5"},
        {"format_version": "1.2", "planned_values": {"root_module": {}}},
        {"resource": {"kafka_quota": {}}},
        {"quotas": [{"entity": {"user": "a"}, "values": {}}]},
        {"kafka_quotas": {"entries": []}},
        {"context": "c", "projects": []},
    ]
)
members = st.sampled_from(
    ["spec", "items", "values", "planned_values", "resources", "platform", "quotas", "resource"]
)


def settings_in(tree: object) -> int:
    """Count the values that stand under a quota key."""
    if isinstance(tree, list):
        return sum(map(settings_in, tree))
    if not isinstance(tree, dict):
        return 0
    names = {key.replace("-", "").replace("_", "").lower(): value for key, value in tree.items()}
    rates = {key.replace("_", "") for key in QUOTA_KEY_RULES}
    own = sum(
        1
        for key, value in names.items()
        if key in rates and value is not None and not isinstance(value, bool)
    )
    return own + sum(map(settings_in, tree.values()))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=roots, more=st.dictionaries(members, trees, max_size=3))
def test_no_recognized_file_comes_out_empty_without_a_word(
    tmp_path: Path, root: dict[str, object], more: dict[str, object]
):
    tree = {**root, **more}
    try:
        read = imported(tmp_path, json.dumps(tree))
    except UsageError:
        return
    if settings_in(tree):
        assert read.quotas or read.lost


lines = st.sampled_from(
    [
        "Quota configs for ",
        "Configs for ",
        "user-principal 'a'",
        "client-id 'b'",
        "team 'c'",
        " are ",
        "producer_byte_rate=5",
        "consumer_byte_rate=x",
        "request_percentage",
        "SCRAM-SHA-256=salt=hunter2",
        ", ",
        "\n",
        "\n> ",
    ]
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, max_size=14).map("".join))
@example("Quota configs for user-principal 'a'SCRAM-SHA-256=salt=hunter2user-principal 'a' are 5")
def test_no_line_with_a_quota_goes_without_a_word(tmp_path: Path, text: str):
    first = "Quota configs for user-principal 'z' are connection_creation_rate=5\n"
    read = imported(tmp_path, first + text)
    assert len(read.lost) > 1 or read.quotas or "=5" not in text.replace("=x", "=5")
    assert "salt=" not in str(read.lost)


blocks = st.sampled_from(
    ["{", "}", "[", "]", "(", ")", "=", ",", "\n", '"', "${", "a", "5", "*", "for", "<<X\n", "/*"]
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(blocks, max_size=14).map(" ".join))
def test_a_configuration_is_read_lost_or_refused(tmp_path: Path, config: str):
    text = f'resource "kafka_quota" "q" {{\n  entity_type = "user"\n  config = {config}\n}}\n'
    try:
        read = imported(tmp_path, text)
    except UsageError:
        return
    assert read.quotas or read.lost


HELM = "{{- range .users }}\nkind: KafkaUser\nspec: {quotas: {requestPercentage: 5}}\n{{- end }}\n"
TERRAFORM = '  ~ resource "kafka_quota" "a" {\n      ~ config = {\n          ~ "x" = "1" -> "2"\n'
COMMANDS = "#!/bin/sh\nkafka-configs.sh --alter --add-config producer_byte_rate=1 --entity-name a\n"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (HELM, "helm template … | kafka-client-quotas import -"),
        (
            f"Terraform will perform the following actions:\n{TERRAFORM}",
            "terraform show -json PLAN",
        ),
        (TERRAFORM, "terraform show -json PLAN"),
        (COMMANDS, "kafka-client-quotas --alter takes the options"),
        ("{user=a}\nproducer_byte_rate=1\n", "--output yaml"),
        ("CLIENT-ID  USER   PRODUCER_BYTE_RATE\n=========  =====  ====\na b 1\n", "--json"),
    ],
)
def test_what_people_take_for_a_file_of_a_tool_has_advice(tmp_path: Path, text: str, advice: str):
    with pytest.raises(UsageError, match=advice.replace("|", r"\|")):
        imported(tmp_path, text)


@pytest.mark.parametrize(
    "patch",
    [
        "patch: |\n  - op: replace\n    path: /spec/quotas/producerByteRate\n    value: 5\n",
        "patch: |\n  spec: {quotas: {controllerMutationRate: 5}}\n",
        "patch: '{\"connection-creation-rate\": 5}'\n",
        "patch: 'producerByteRate: {{ .rate }}'\n",
        "patch: [{op: add, path: /spec/quotas/requestPercentage, value: 5}]\n",
    ],
)
def test_a_quota_within_a_text_is_lost_and_not_overlooked(tmp_path: Path, patch: str):
    read = imported(
        tmp_path, f"apiVersion: v1\nkind: Kustomization\nmetadata: {{name: a}}\n{patch}"
    )
    (loss,) = read.lost
    assert loss.endswith("has quotas in a text: not read")


def test_a_character_that_yaml_forbids_is_named_with_its_line(tmp_path: Path):
    with pytest.raises(UsageError, match=r":3: .* the character U\+000B stands here, unescaped\."):
        imported(tmp_path, "é: 1\nb: é\nc: \v\n")
