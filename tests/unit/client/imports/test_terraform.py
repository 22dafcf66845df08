"""Terraform's states, plans and configurations: each quota is read or lost by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.client.errors import UsageError
from tests.unit.client.imports.conftest import C, I, P, R, imported

QUOTA = {"entity_name": "etl", "entity_type": "client-id", "config": {C: "4000000", P: 3500000}}
ETL = ({"client-id": "etl"}, {C: 4000000, P: 3500000})


def resource(kind: str, values: object, address: str = "") -> dict[str, Any]:
    return {"address": address or f"{kind}.q", "type": kind, "name": "q", "values": values}


def show_output(*resources: object, **more: object) -> str:
    module = {"resources": [], "child_modules": [{"resources": list(resources)}]}
    return json.dumps({"format_version": "1.0", "values": {"root_module": module}, **more})


def planned(*resources: object, **more: object) -> str:
    plan = {"format_version": "1.2", "planned_values": {"root_module": {"resources": resources}}}
    return json.dumps({**plan, **more})


def state(*resources: object) -> str:
    return json.dumps({"version": 4, "terraform_version": "1.9.0", "resources": resources})


def test_a_state_is_read(tmp_path: Path):
    default = {"entity_name": "", "entity_type": "ip", "config": {I: "5"}}
    read = imported(
        tmp_path,
        state(
            {"type": "kafka_quota", "instances": [{"attributes": QUOTA}, {"attributes": default}]},
            {"type": "kafka_topic", "instances": [{"attributes": {"name": "t"}}]},
            {"type": "kafka_quota", "instances": [{"attributes": QUOTA, "deposed": "a"}]},
        ),
    )
    assert read.quotas == [({"ip": None}, {I: 5}), ETL]
    assert read.lost == []
    assert read.others == {"resource of another type": 1, "resource to be removed": 1}


def test_what_show_prints_is_read_with_its_modules(tmp_path: Path):
    assert imported(tmp_path, show_output(resource("kafka_quota", QUOTA)))[:2] == ([ETL], [])


def test_of_a_plan_the_planned_values_are_read(tmp_path: Path):
    before = {**QUOTA, "config": {C: "1"}}
    read = imported(
        tmp_path,
        planned(
            resource("kafka_quota", QUOTA),
            resource_changes=[{"address": "kafka_quota.q", "change": {"after": QUOTA}}],
            prior_state={
                "values": {"root_module": {"resources": [resource("kafka_quota", before)]}}
            },
            configuration={"root_module": {"variables": {P: {"default": 1}}}},
        ),
    )
    assert read == ([ETL], [], [], {})


def test_a_plan_that_has_its_changes_alone_is_read(tmp_path: Path):
    change = {"address": "kafka_quota.q", "type": "kafka_quota", "change": {"after": QUOTA}}
    text = json.dumps({"terraform_version": "1", "resource_changes": [change]})
    assert imported(tmp_path, text)[:2] == ([ETL], [])


def test_what_a_plan_removes_is_counted_and_what_it_forgets_is_lost(tmp_path: Path):
    gone, other = resource("kafka_quota", QUOTA, "kafka_quota.gone"), {**QUOTA, "entity_name": "b"}
    forgotten = resource("kafka_quota", other, "kafka_quota.forgotten")
    read = imported(
        tmp_path,
        planned(
            resource_changes=[{"address": "kafka_quota.gone", "change": {"actions": ["delete"]}}],
            prior_state={"values": {"root_module": {"resources": [gone, forgotten]}}},
        ),
    )
    assert read.lost == ["1: kafka_quota.forgotten is in prior_state, and not in planned_values"]
    assert read.others == {"quota that the plan removes": 1}


@pytest.mark.parametrize(
    ("values", "unknown", "sentence"),
    [
        ({"entity_type": "user", "config": {P: "1"}}, {"entity_name": True}, "entity_name is"),
        ({"entity_type": "user", "entity_name": "a"}, {"config": True}, "its config is"),
        ({"entity_type": "user", "entity_name": "a", "config": {}}, {"config": {P: True}}, P),
    ],
)
def test_what_apply_will_decide_is_no_default(
    tmp_path: Path, values: object, unknown: object, sentence: str
):
    change = {"address": "kafka_quota.q", "change": {"after": values, "after_unknown": unknown}}
    read = imported(tmp_path, planned(resource("kafka_quota", values), resource_changes=[change]))
    (loss,) = read.lost
    assert sentence in loss
    assert "known after apply" in loss
    assert read.quotas == []


@pytest.mark.parametrize(
    ("kind", "values", "entity", "quotas"),
    [
        (
            "aiven_kafka_quota",
            {"user": "default", "client_id": "c", C: 10, P: 0, R: None, "project": "p"},
            {"user": None, "client-id": "c"},
            {C: 10},
        ),
        (
            "huaweicloud_dms_kafka_user_client_quota",
            {"user": "default", "client": "", "client_default": True, P: 2048, C: 0},
            {"user": "default", "client-id": None},
            {P: 2048},
        ),
        (
            "kubernetes_manifest",
            {
                "manifest": {
                    "kind": "KafkaUser",
                    "metadata": {"name": "a"},
                    "spec": {"quotas": {"producerByteRate": 5}},
                }
            },
            {"user": "a"},
            {P: 5},
        ),
    ],
)
def test_quotas_of_other_providers_are_read(
    tmp_path: Path, kind: str, values: object, entity: object, quotas: object
):
    read = imported(tmp_path, show_output(resource(kind, values)))
    assert read.quotas == [(entity, quotas)]
    assert read.lost == []


def test_quotas_of_confluent_cloud_are_named_and_not_carried_over(tmp_path: Path):
    values = {
        "throughput": [{"ingress_byte_rate": "100", "egress_byte_rate": "200"}],
        "principals": ["sa-1", "<default>"],
    }
    read = imported(tmp_path, show_output(resource("confluent_kafka_client_quota", values)))
    assert read.quotas == []
    (loss,) = read.lost
    start = (
        "1: confluent_kafka_client_quota.q: ingress_byte_rate=100, egress_byte_rate=200 of sa-1,"
    )
    assert loss.startswith(start)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            show_output(resource("acme_kafka_quota", {"limit": 5})),
            "acme_kafka_quota.q: quotas of this type",
        ),
        (show_output(resource("acme_limits", {"x": [{P: 5}]})), f"values.x.0.{P}: not read"),
        (
            show_output(resource("kafka_quota", {**QUOTA, "entity_type": "group"})),
            "entity_type is group",
        ),
        (
            show_output(resource("kafka_quota", {"entity_type": "user", "config": {}})),
            "no entity_name",
        ),
        (show_output(resource("kafka_quota", {**QUOTA, "config": None})), "its config is absent"),
        (show_output(resource("kafka_quota", {**QUOTA, "config": {}})), "its config is empty"),
        (show_output(outputs={"rates": {"value": {P: 7}}}), f"outputs.rates.value.{P}: not read"),
        (
            json.dumps({"version": 3, "terraform_version": "0.11", "modules": [{"resources": {}}]}),
            "a state of version 3 is not read",
        ),
    ],
)
def test_a_quota_that_is_not_read_is_lost_by_name(tmp_path: Path, text: str, sentence: str):
    (loss,) = imported(tmp_path, text).lost
    assert sentence in loss


def test_what_repeats_the_quotas_of_a_plan_is_not_lost(tmp_path: Path):
    outputs = {"rates": {"value": {P: 7}}}
    variables = {"teams": {"value": {"a": {P: 7}}}}
    quota = resource("kafka_quota", QUOTA)
    plan = json.loads(planned(quota, variables=variables, output_changes=outputs))
    plan["planned_values"]["outputs"] = outputs
    assert imported(tmp_path, json.dumps(plan)) == ([ETL], [], [], {})


HCL = """\
# limits
terraform { required_version = ">= 1" }
variable "rate" { default = 5 }
module "net" { source = "./net" }
resource "kafka_quota" "app_one" {
  entity_name = "app-one" // a name
  entity_type = "client-id"

  config = {
    "consumer_byte_rate" = "4000000" # 4 MB/s
    producer_byte_rate: 2 * 1024 * 1024,
    "request_percentage" = 200
  }
  lifecycle { prevent_destroy = true }
}
/* the default of users,
   in a comment "with a quote */
resource "kafka_quota" "everyone" {
  entity_type = "user"
  config      = { "producer_byte_rate" = 1.5e6 }
}
resource "aiven_kafka_quota" "q" {
  user               = "a\\"b $${x}"
  consumer_byte_rate = 1000
}
resource "kafka_topic" "t" {
  name   = "t-${var.rate > 1 ? "x" : "}"}"
  config = { for k, v in local.all : k => v }
  policy = <<-EOT
    { "a": 1 }
  EOT
}
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_configuration_is_read(tmp_path: Path, end: str):
    read = imported(tmp_path, HCL.replace("\n", end))
    assert read.quotas == [
        ({"client-id": "app-one"}, {C: 4000000, P: 2097152, R: 200}),
        ({"user": None}, {P: 1500000}),
        ({"user": 'a"b ${x}'}, {C: 1000}),
    ]
    assert (read.lost, read.others) == ([], {"resource of another type": 1})
    assert read.warnings == ["4: module net: its resources stand in files of its own"]


CONFLUENT = """\
resource "confluent_kafka_client_quota" "q" {
  throughput { ingress_byte_rate = "1" }
  principals = ["sa-1"]
}
"""


def block(name: str = '"a"', config: str = "{ producer_byte_rate = 1 }", more: str = "") -> str:
    return (
        f'resource "kafka_quota" "q" {{\n  entity_type = "user"\n  entity_name = {name}\n'
        f"  config = {config}\n{more}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (block(name="var.name"), "kafka_quota.q: entity_name is var . name"),
        (block(name='"team-${var.name}"'), "entity_name is"),
        (block(name="<<EOT\n${var.name}\nEOT"), "entity_name is"),
        (block(config="var.config"), "its config is var . config"),
        (block(config="{ for k in x : k => 1 }"), "its config is { for"),
        (block(config="merge(local.a, {\n  b = 1\n})"), "its config is merge"),
        (block(config="{ producer_byte_rate = var.rate }"), f"{P}=var . rate: not a number"),
        (block(config="{ (var.key) = 5 }"), "{user=a} ${(var.key)}: not a quota key"),
        (block(more="  count = 3\n"), "it has count, so it may be several"),
        (block(more="  for_each = var.all\n"), "it has for_each, so it may be several"),
        (
            CONFLUENT,
            "ingress_byte_rate=1 of sa-1: principals",
        ),
        ('resource "acme_kafka_quota" "q" {\n}\n', "acme_kafka_quota.q: quotas of this type"),
    ],
)
def test_what_a_configuration_computes_is_lost_by_name(tmp_path: Path, text: str, sentence: str):
    read = imported(tmp_path, text)
    (loss,) = read.lost
    assert sentence in loss
    assert read.quotas == []


@pytest.mark.parametrize(
    "text",
    [
        'resource "kafka_quota" "q" {\n  entity_type = "user\n}\n',
        'resource "kafka_quota" "q" {\n  config = {\n',
        'resource "kafka_quota" "q" {\n  = 5\n}\n',
        'resource "kafka_quota" "q" {\n' + "  a {\n" * 60,
        f'resource "kafka_quota" "q" {{\n  a = {"[" * 2000}\n',
    ],
)
def test_a_broken_configuration_is_refused_with_its_line(tmp_path: Path, text: str):
    with pytest.raises(UsageError, match=r"foreign:\d+: .*terraform show -json"):
        imported(tmp_path, text)


def test_values_outside_resources_are_not_dropped(tmp_path: Path):
    text = "locals {\n  teams = { a = { producer_byte_rate = 5 } }\n}\n"
    assert imported(tmp_path, text).lost == [f"2: teams.a.{P}: not read"]


def test_a_configuration_in_json_may_have_lists(tmp_path: Path):
    default = {"entity_type": "user", "config": {P: 5}}
    text = json.dumps({"resource": [{"kafka_quota": [{"q": [default]}]}]})
    assert imported(tmp_path, text)[:2] == ([({"user": None}, {P: 5})], [])


def test_a_configuration_in_json_is_read(tmp_path: Path):
    quota = {"q": QUOTA, "v": {**QUOTA, "entity_name": "${var.name}"}}
    read = imported(tmp_path, json.dumps({"resource": {"kafka_quota": quota}}))
    assert read.quotas == [ETL]
    assert read.lost == [
        "1: kafka_quota.v: entity_name is ${var.name}, which is filled in elsewhere"
    ]


@pytest.mark.parametrize(
    ("heredoc", "name"),
    [
        ("<<EOT\n  a\nEOT", "  a\n"),
        ("<<-EOT\n    a\n      b\n  EOT", "a\n  b\n"),
        ("<<EOT\n$${a}\nEOT", "${a}\n"),
    ],
)
def test_a_text_of_several_lines_is_what_terraform_makes_of_it(
    tmp_path: Path, heredoc: str, name: str
):
    assert imported(tmp_path, block(name=heredoc)).quotas == [({"user": name}, {P: 1})]


@pytest.mark.parametrize(
    "text",
    [
        'resource "kubernetes_manifest" "m" {\n  manifest = yamldecode(file("user.yaml"))\n}\n',
        '{"resource": {"kubernetes_manifest": {"m": {"manifest": "${yamldecode(var.user)}"}}}}',
    ],
)
def test_a_manifest_that_is_computed_may_have_quotas(tmp_path: Path, text: str):
    (warning,) = imported(tmp_path, text).warnings
    assert warning == (
        "1: kubernetes_manifest.m: its manifest is computed, so it may have quotas; "
        "terraform show -json has it"
    )
