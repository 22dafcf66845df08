"""The file of clusters: what it takes, and a sentence for each fault that names its key."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.documents.clusters import ClustersFileError, read_clusters_file

LEAST = {"bootstrap_servers": "kafka:9092"}


def written(folder: Path, document: Any) -> Path:
    path = folder / "clusters.yaml"
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder: Path, document: Any) -> list[str]:
    path = written(folder, document)
    with pytest.raises(ClustersFileError) as refused:
        read_clusters_file(path)
    lines = str(refused.value).splitlines()
    assert all(line.startswith(f"{path}: ") and line.endswith(".") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def of_entry(**members: Any) -> dict[str, Any]:
    return {"default": "a", "clusters": {"a": LEAST | members}}


def test_each_member_is_read_and_paths_are_relative_to_the_file(tmp_path: Path):
    (tmp_path / "password").write_text("secret\n")
    whole = of_entry(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="quotas",
        sasl_password_file="password",
        ssl_ca_file="/etc/ca.pem",
        super_users=["User:root", "User:CN=a,O=b"],
        auditors=[],
        allow_everyone_if_no_acl_found=True,
        policy_file="policy.yaml",
        callback={"class": "a.B", "model": "kafka"},
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
    )
    whole["clusters"]["b-2"] = {**LEAST, "callback": "callback.yaml"}
    document = read_clusters_file(written(tmp_path, whole))
    assert (document.default, list(document.clusters)) == ("a", ["a", "b-2"])
    first, second = document.clusters.values()
    assert (first.sasl_password, first.super_users) == ("secret", {"User:root", "User:CN=a,O=b"})
    assert (first.policy_file, first.ssl_ca_file) == (tmp_path / "policy.yaml", Path("/etc/ca.pem"))
    assert (first.auditors, first.allow_everyone_if_no_acl_found) == (frozenset(), True)
    assert second.callback == tmp_path / "callback.yaml"
    assert "secret" not in repr(first)


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"bootstrap_servers": "kafka"}, "a.bootstrap_servers: the bootstrap server at position 1"),
        ({"bootstrap_servers": ["kafka:9092"]}, "a.bootstrap_servers: it is to be a text"),
        ({"security_protocol": "TLS"}, "a.security_protocol: it takes one of PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL"}, "a.sasl_mechanism is needed with security_protocol"),
        ({"sasl_username": "me"}, "a.sasl_username is of no use without a security_protocol"),
        ({"sasl_password_file": "none"}, "a.sasl_password_file: "),
        ({"ssl_key_file": "key.pem"}, "a.ssl_cert_file is needed with ssl_key_file"),
        ({"super_users": "User:root"}, "a.super_users: it is to be a list of texts"),
        ({"super_users": ["User:a;User:b"]}, "a.super_users: 'User:a;User:b': write each"),
        ({"auditors": ["root"]}, "a.auditors: expected a principal such as User:alice"),
        ({"allow_everyone_if_no_acl_found": "yes"}, "it takes true or false"),
        ({"callback": 1}, "a.callback: it is to be one mapping"),
        ({"policy_file": None}, "a.policy_file: it is to be a text"),
        ({"sasl_password": "secret"}, "a.sasl_password is unknown; a cluster takes"),
    ],
)
def test_a_fault_of_a_cluster_names_its_key(tmp_path: Path, members: Any, fault: str):
    assert any(
        f"clusters.{fault}" in line or fault in line
        for line in faults(tmp_path, of_entry(**members))
    )


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"clusters": {"a": LEAST}}, "default: the name of a cluster is needed"),
        ({"default": "b", "clusters": {"a": LEAST}}, "default: 'b' is none of the clusters"),
        ({"default": "a"}, "clusters is to be one mapping"),
        ({"default": "a", "clusters": {"a": LEAST}, "more": 1}, "'more' is unknown in the file"),
        ({"default": "A", "clusters": {"A": LEAST}}, "'A' is no name of a cluster"),
        ({"default": "a" * 64, "clusters": {"a" * 64: LEAST}}, "is no name of a cluster"),
        ({"default": "", "clusters": {"": LEAST}}, "'' is no name of a cluster"),
        ({"default": "a.b", "clusters": {"a.b": LEAST}}, "'a.b' is no name of a cluster"),
        ({"default": "a", "clusters": {"a": None}}, "clusters.a is to be a mapping"),
        ({"default": "a", "clusters": {"a": {}}}, "clusters.a.bootstrap_servers is needed"),
        ("default: a\nclusters: {a: {}, a: {}}", "'a' is there twice"),
        ("default: &x a\nclusters: {*x : {}}", "is not YAML"),
        ("clusters: [", "is not YAML"),
        ("", "the file is to be one mapping"),
    ],
)
def test_a_fault_of_the_file_names_what_is_wrong(tmp_path: Path, document: Any, fault: str):
    assert any(fault in line for line in faults(tmp_path, document))


def test_every_fault_is_reported_and_no_secret_is(tmp_path: Path):
    document = of_entry(super_users=1, auditors=2, sasl_mechanism="secret")
    document["clusters"]["B"] = {"bootstrap_servers": "user:secret@kafka"}
    found = faults(tmp_path, document)
    assert len(found) == 6
    assert "secret" not in "".join(found)


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path):
    with pytest.raises(ClustersFileError, match="cannot be read"):
        read_clusters_file(tmp_path / "none")
