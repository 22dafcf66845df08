"""Several clusters on this machine: a broker for each, and the file that the service reads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.localdev.kafka import LocalKafka
from app.localdev.local_directory import write_private

NAMES: Final = ("prod", "staging", "test")
"""The first is the default, and the broker that there is without others."""

FILE: Final = "QUOTAS_CLUSTERS_FILE"

_OF_EACH: Final = {"QUOTAS_SUPER_USERS": "super_users", "QUOTAS_AUDITORS": "auditors"}
_FILES: Final = {"QUOTAS_POLICY_FILE": "policy_file", "QUOTAS_CALLBACK_FILE": "callback"}
"""Settings of one cluster, and the members of the file that take their place."""


def folder_of(name: str) -> str:
    """Return the name of the folder of a broker."""
    return "kafka" if name == NAMES[0] else f"kafka-{name}"


def write_clusters_file(
    path: Path, brokers: Mapping[str, LocalKafka], environ: dict[str, str]
) -> None:
    """Write the file; settings that it takes the place of leave the environment."""
    common: dict[str, Any] = {}
    for variable, member in _OF_EACH.items():
        if value := environ.pop(variable, ""):
            common[member] = [each.strip() for each in value.split(";") if each.strip()]
    for variable, member in _FILES.items():
        if value := environ.pop(variable, ""):
            common[member] = str(Path(value).absolute())
    environ[FILE] = str(path)
    clusters = {
        name: {"bootstrap_servers": broker.bootstrap_servers, **common}
        for name, broker in brokers.items()
    }
    document = {"default": next(iter(brokers)), "clusters": clusters}
    # JSON is YAML.
    write_private(path, json.dumps(document, indent=2) + "\n")
