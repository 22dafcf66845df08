"""``snapshot`` keeps what a real service says, and names what keeps it from doing so."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.pipeline.conftest import Command
from tests.testkit.http import closed_port
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

QUOTAS = {
    (("user", "alice"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
    (("user", None),): {"consumer_byte_rate": 2.0**63},
    (("client-id", "a/b=c%"), ("user", "<default>")): {"controller_mutation_rate": 0.5},
    (("client-id", None), ("user", "alice")): {"request_percentage": float("inf")},
    (("client-id", None),): {"producer_byte_rate": 5.0},
    (("ip", "192.0.2.1"),): {"connection_creation_rate": 5.0},
}


def token_file(folder: Path, token: str) -> Path:
    file = folder / f"{token}.token"
    file.write_text(f"{token}\n")
    return file


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    files = ds.dataset(folder / table, partitioning="hive", format="parquet")
    found: list[dict[str, Any]] = files.to_table().to_pylist()
    return found


@pytest.fixture
def raw(service: RunningService):
    with RawQuotas(service.environ["QUOTAS_KAFKA_BOOTSTRAP_SERVERS"]) as raw:
        raw.become({frozenset(names): values for names, values in QUOTAS.items()})
        yield raw
        raw.become({})


def test_every_value_is_kept_but_those_of_addresses(
    command: Command, service: RunningService, raw: RawQuotas, tmp_path: Path
):
    arguments = ["--server", service.url, "--token-file", token_file(tmp_path, "bob")]
    begun = datetime.now(UTC)
    out = tmp_path / "out"
    for _ in range(2):
        done = command("snapshot", *arguments, "--out", out, "--json")
        assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["entities"], told["ip_entities_left_out"], told["rows_out"]) == (5, 1, 6)

    versions = rows(out, "quota_version")
    assert {
        (
            *(row["user"], row["user_default"], row["client_id"], row["client_default"]),
            *(row["key"], row["value"]),
        )
        for row in versions
    } == {
        ("alice", False, "", False, "producer_byte_rate", 1024.0),
        ("alice", False, "", False, "request_percentage", 12.5),
        ("", True, "", False, "consumer_byte_rate", 2.0**63),
        ("<default>", False, "a/b=c%", False, "controller_mutation_rate", 0.5),
        ("alice", False, "", True, "request_percentage", float("inf")),
        ("", False, "", True, "producer_byte_rate", 5.0),
    }
    assert len(versions) == 6
    (taken_at,) = {row["valid_from"] for row in versions}
    assert taken_at.isoformat() == told["taken_at"]
    assert begun < taken_at <= datetime.now(UTC)
    assert {(row["origin"], row["valid_to"], row["audit_seq"]) for row in versions} == {
        ("snapshot", None, None)
    }
    kept = rows(out, "quota_snapshot")
    assert len({row["snapshot_id"] for row in kept}) == 1
    assert {row["taken_at"] for row in kept} == {taken_at}
    assert len(kept) == 6
    cluster = service.api("bob").get("/quotas").json()["cluster_id"]
    assert {row["cluster_id"] for row in kept + versions} == {cluster}


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("nobody", "does not accept the token of --token-file"),
        ("mallory", "The principal of --token-file may not describe quotas"),
    ],
)
def test_a_token_that_is_not_good_enough_is_named(
    command: Command, service: RunningService, tmp_path: Path, token: str, sentence: str
):
    arguments = ["--server", service.url, "--token-file", token_file(tmp_path, token)]
    done = command("snapshot", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_service_that_cannot_be_reached_is_named(command: Command, tmp_path: Path):
    arguments = ["--token-file", token_file(tmp_path, "bob"), "--out", tmp_path / "out"]
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        done = command("snapshot", "--server", url, *arguments)
    assert done.returncode == 5
    assert f"{url} cannot be reached" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--server", "http://x"], "--token-file is missing"),
        (["--token-file", "x"], "--server is missing"),
        (["--server", "http://x", "--token-file", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_wrong_usage_is_named(
    command: Command, tmp_path: Path, arguments: list[str], sentence: str
):
    done = command("snapshot", *arguments, "--out", tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
