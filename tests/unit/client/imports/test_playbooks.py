"""Playbooks of Ansible and topologies of Julie."""

from pathlib import Path

import pytest

from tests.unit.client.imports.conftest import C, P, R, imported

PLAYBOOK = """\
- hosts: kafka
  vars:
    kafka_quotas: []
  tasks:
    - name: quotas
      block:
        - sorriaux.kafka.kafka_quotas:
            bootstrap_servers: "{{ servers }}"
            entries:
              - entity: {user: a, client: <default>}
                quotas: {producer_byte_rate: 104405, request_percentage: 55.5}
              - entity: [{entity_type: user, entity_name: b}, {entity_type: client-id, entity_default: true}]
                quotas: {consumer_byte_rate: 5}
              - entity: {user: "{{ item }}"}
                quotas: {consumer_byte_rate: 5}
              - entity: {user: c}
                quotas: {consumer_byte_rate: "{{ rate }}"}
              - entity: {user: d}
    - kafka_quotas: {entries: "{{ all }}"}
"""  # noqa: E501


def test_entries_of_ansible_are_read_wherever_the_task_stands(tmp_path: Path):
    read = imported(tmp_path, PLAYBOOK)
    assert read.quotas == [
        ({"client-id": None, "user": "a"}, {P: 104405, R: 55.5}),
        ({"client-id": None, "user": "b"}, {C: 5}),
    ]
    assert read.lost == [
        "14: an entry of kafka_quotas: user is {{ item }}, which is filled in elsewhere",
        "17: {user=c} consumer_byte_rate={{ rate }}: a template, filled in elsewhere",
        "18: an entry of kafka_quotas: it has no quotas",
        "19: kafka_quotas: entries is {{ all }}: not read",
    ]


@pytest.mark.parametrize("indent", [0, 2])
def test_quotas_of_julie_are_of_the_principal_as_it_is(tmp_path: Path, indent: int):
    quotas = """\
kafka:
  quotas:
    - principal: "User:App0"
      producer_byte_rate: 1024
      request_percentage: 50.0
    - principal: ""
      consumer_byte_rate: 7
    - producer_byte_rate: 5
"""
    text = quotas
    if indent:
        nested = "".join(f"  {line}\n" for line in quotas.splitlines())
        text = f"context: c\nprojects: [{{name: foo}}]\nplatform:\n{nested}"
    read = imported(tmp_path, text)
    assert read.quotas == [({"user": None}, {C: 7}), ({"user": "User:App0"}, {P: 1024, R: 50})]
    (loss,) = read.lost
    assert loss.endswith("a quota of the topology: it has no principal")
