"""``make run CLUSTERS=2``: two real brokers behind one service, the command and the pipeline."""

import json
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.client.cli import main
from app.pipeline.clusters import CLUSTERS_FILE, cluster_id_of
from app.pipeline.commands.snapshot import describe_live
from app.pipeline.main import main as pipeline
from tests.integration.localdev.test_dev import RunningDev, start
from tests.testkit.patience import wait_until

P = "producer_byte_rate"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDev]:
    running = start(tmp_path_factory.mktemp("two"), "--clusters", "2")
    yield running
    running.stop()


@pytest.fixture
def environ(dev: RunningDev, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What ``. .local/env`` sets, and the file of the clusters."""
    lines = (dev.directory / "env").read_text().splitlines()
    exported = (line.removeprefix("export ") for line in lines if line.startswith("export "))
    pairs = (shlex.split(line)[0].partition("=") for line in exported)
    found = {name: value for name, _, value in pairs if name != "PATH"}
    found[CLUSTERS_FILE] = str(dev.directory / "clusters.yaml")
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """Run the command; return its code and what it says in JSON."""
    code = main([*words, "--output", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_two_clusters_are_apart_and_can_be_compared_and_made_alike(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def are_ready() -> bool:  # a broker of a busy machine may answer late
        return all(each["ready"] for each in ran(capsys, "clusters")[1]["clusters"])

    wait_until(are_ready, "a cluster is not ready")
    _, listed = ran(capsys, "clusters")
    ids = {each["name"]: each["cluster_id"] for each in listed["clusters"]}
    assert list(ids) == ["prod", "staging"]
    assert (listed["default"], len(set(ids.values()))) == ("prod", 2)
    _, who = ran(capsys, "whoami", "--all")
    assert [(row["name"], row["me"]["cluster_id"]) for row in who["clusters"]] == [*ids.items()]

    code, compared = ran(capsys, "diff", "--cluster", "prod", "staging")
    assert (code, len(compared["differences"]) > 10) == (1, True)
    assert {first / second for first, second in (d["values"] for d in compared["differences"])} == {
        2
    }
    exported = tmp_path / "prod.yaml"
    assert main(["export", "--cluster", "prod", "--out", str(exported)]) == 0
    assert main(["apply", str(exported), "--yes", "--cluster", "staging"]) == 0
    capsys.readouterr()
    assert ran(capsys, "diff", "--cluster", "prod", "staging")[0] == 0
    alter = ["alter", "--names", "user=zoe", "--add", f"{P}=4MiB", "--cluster", "staging"]
    assert main(alter) == 0
    assert "--cluster staging" in capsys.readouterr().err
    code, compared = ran(capsys, "diff", "--cluster", "prod", "staging")
    (zoe,) = compared["differences"]
    assert (code, zoe["entity"], zoe["values"]) == (1, {"user": "zoe"}, [None, 4194304])
    for name, number in (("prod", 0), ("staging", 1)):
        _, log = ran(capsys, "audit", "--entity", "user=zoe", "--cluster", name)
        assert len(log["rows"]) == number
    assert main(["describe", "--cluster", "other"]) == 1
    capsys.readouterr()

    server, token = (environ[f"KAFKA_CLIENT_QUOTAS_{name}"] for name in ("SERVER", "TOKEN_FILE"))
    cluster_id, _, quotas = describe_live(server, token, "staging")
    assert (cluster_id, len(quotas)) == (ids["staging"], 11)
    options = Namespace(clusters_file=None, cluster="staging", dry_run=False)
    assert cluster_id_of(options) == ids["staging"]
    words = ["collect", "--endpoint", f"1={environ['metrics']}", "--cluster", "prod"]
    assert pipeline([*words, "--duration", "1", "--interval", "10", "--out", str(tmp_path)]) == 0
    collected = pq.read_table(tmp_path / "collected").column("cluster_id").to_pylist()
    assert set(collected) == {ids["prod"]}
    assert pipeline([*words[:3], "--cluster", "none", "--out", str(tmp_path)]) == 2
    assert "has no cluster none; it has prod, staging." in capsys.readouterr().err
