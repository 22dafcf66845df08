"""What brokers can do, and which users there are, read from files."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.pipeline.advice.capacity import Capacity, capacity_of, read_capacity
from app.pipeline.advice.drift import read_desired
from app.pipeline.advice.stale import read_inventory
from app.pipeline.commands.overcommit import summary_of
from app.pipeline.errors import UsageError
from tests.pipeline.conftest import Command


def document(*brokers: Any) -> str:
    return json.dumps({"brokerCapacities": list(brokers)})


def broker(broker_id: Any = "-1", **capacity: Any) -> dict[str, Any]:
    return {"brokerId": broker_id, "capacity": {"NW_IN": "10000", "NW_OUT": "5000", **capacity}}


def written(folder: Path, text: str) -> str:
    file = folder / "file"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_each_form_of_cruise_control_is_read(tmp_path: Path):
    """Source: its capacity.json, capacityJBOD.json and capacityCores.json."""
    text = document(
        {**broker(DISK="100000", CPU="100"), "doc": "The default."},
        broker("0", DISK={"/logs-1": "100000", "/logs-2": "200000"}, CPU="100", NW_IN="1"),
        broker(1, DISK="100000", CPU={"num.cores": "16"}, NW_OUT=0.5),
    )
    found = read_capacity(written(tmp_path, text))
    default = Capacity(10_000 * 1024, 5_000 * 1024)
    assert found == {-1: default, 0: Capacity(1024, 5_120_000), 1: Capacity(10_240_000, 512)}
    assert [capacity_of(found, number) for number in (1, 7)] == [found[1], default]
    assert capacity_of({0: found[0]}, 7) == Capacity()


def test_a_table_says_more(tmp_path: Path):
    heading = "broker_id,nic_in_bps,nic_out_bps,threads,replication_factor_avg"
    text = f"{heading}\n1,100,200,11,2.5\n-1,1e6,2e6,,\n"
    assert read_capacity(written(tmp_path, text)) == {
        1: Capacity(100, 200, 11, 2.5),
        -1: Capacity(1e6, 2e6),
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "it is not JSON"),
        ("{}", "brokerCapacities must be a list"),
        ("[]", "brokerCapacities must be a list"),
        (document(1), r"brokerCapacities\[0\] must be an object"),
        (
            document(broker(), {"brokerId": "1"}),
            r"brokerCapacities\[1\]\.capacity must be an object",
        ),
        (document(broker("one")), r"brokerCapacities\[0\]\.brokerId must be a broker's id"),
        (document(broker("-2")), r"brokerCapacities\[0\]\.brokerId must be a broker's id"),
        (document(broker(True)), r"brokerCapacities\[0\]\.brokerId must be a broker's id"),
        (
            document(broker(NW_IN="fast")),
            r"brokerCapacities\[0\]\.capacity\.NW_IN must be a number",
        ),
        (
            document(broker(NW_OUT=None)),
            r"brokerCapacities\[0\]\.capacity\.NW_OUT must be a number",
        ),
        (
            document(broker(NW_OUT="nan")),
            r"brokerCapacities\[0\]\.capacity\.NW_OUT must be a number",
        ),
        (document(broker(NW_OUT="0")), r"brokerCapacities\[0\]\.capacity\.NW_OUT must be a number"),
        (
            document(broker("1"), broker(1)),
            r"brokerCapacities\[1\]\.brokerId: broker 1 stands there",
        ),
        (document(), "has no broker"),
        ("broker_id,nic_in_bps\n1,2\n", "lacks the column nic_out_bps"),
        ("broker_id,nic_in_bps,nic_out_bps,disk\n", "the column 'disk' is none of"),
        ("broker_id,nic_in_bps,nic_out_bps\n1,2,3\n1,2,3\n", "line 3: broker 1 stands there twice"),
        ("broker_id,nic_in_bps,nic_out_bps\n1,2,x\n", "nic_out_bps of line 2 must be a number"),
        ("", "lacks the column broker_id"),
    ],
)
def test_a_wrong_capacity_is_refused_with_the_member(tmp_path: Path, text: str, fault: str):
    with pytest.raises(UsageError, match=f"--capacity .*{fault}"):
        read_capacity(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        '["alice", "User:bob"]',
        '{"users": [{"user": "alice", "credentials": []}, {"user": "bob"}]}',
        "cluster_id,user,mechanism\nc1,alice,scram\nc1,User:bob,acl\n",
        "alice\n\nUser:bob\n",
    ],
)
def test_an_inventory_is_read_in_each_form(tmp_path: Path, text: str):
    assert read_inventory(written(tmp_path, text)) == {"alice", "bob"}


@pytest.mark.parametrize("text", ['{"names": []}', "[1]", '{"users": [{"name": "a"}]}', "[" * 3])
def test_what_is_no_inventory_is_refused(tmp_path: Path, text: str):
    with pytest.raises(UsageError, match="--inventory is no list of users"):
        read_inventory(written(tmp_path, text))


@pytest.mark.parametrize(
    ("values", "line"),
    [("{producer_byte_rate: many}", 3), ("{producer_byte_rate: 1", 4), ("a: b", 3)],
)
def test_a_document_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, values: str, line: int
):
    text = f"quotas:\n- entity: {{user: alice}}\n  values: {values}\n"
    sentence = rf"--desired is no document of quotas: line {line}: .*[^.]\.$"
    with pytest.raises(UsageError, match=sentence):
        read_desired(written(tmp_path, text))


@pytest.mark.parametrize("read", [read_capacity, read_inventory, read_desired])
def test_a_file_that_is_missing_is_named_by_its_option(tmp_path: Path, read: Any):
    with pytest.raises(UsageError, match=r"The file of --\w+ cannot be read"):
        read(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["overcommit", "--input", "x", "--out", "y"], "--capacity is missing"),
        (["overcommit", "--out", "y", "--capacity", "x"], "--input is missing"),
        (["overcommit", "--input", "x", "--out", "y", "--capacity", "{bad}"], "it is not JSON"),
        (["drift", "--out", "y"], "--quotas is missing"),
        (
            ["drift", "--quotas", "x", "--out", "y", "--desired", "{bad}"],
            "--desired is no document",
        ),
        (["stale", "--input", "x", "--out", "y"], "--quotas is missing"),
        (
            ["stale", "--input", "x", "--out", "y", "--quotas", "z", "--inventory", "{bad}"],
            "--inventory is no list of users",
        ),
        (["rightsize", "--out", "y"], "--input is missing"),
        (["rightsize", "--percentile", "101"], "not a whole number from 50 to 100"),
        (["rightsize", "--margin", "nan"], "not a number from 0 to 100"),
        (["rightsize", "--days", "0"], "not a whole number from 1 to 1000"),
        (
            [
                "run",
                "--capacity",
                "{bad}",
                *["--format", "csv", "--input", "x", "--quotas", "z", "--out", "y"],
            ],
            "JSON",
        ),
    ],
)
def test_wrong_usage_is_refused_before_spark_is_started(
    command: Command, tmp_path: Path, arguments: list[str], sentence: str
):
    bad = written(tmp_path, "{")
    done = command(*(argument.format(bad=bad) for argument in arguments))
    assert (done.returncode, "starting Spark" in done.stderr) == (2, False)
    assert sentence in done.stderr


def promise(broker_id: int, ratio: float | None) -> dict[str, Any]:
    ratios = {"limits_ratio": ratio, "p99_of_sums_ratio": 0.25, "over": ratio and ratio > 1}
    return {"cluster_id": "c", "broker_id": broker_id, "direction": "in", **ratios}


def test_brokers_over_their_capacity_are_listed():
    rows = [promise(1, 1.5), promise(2, 0.9), promise(3, 12.0), promise(4, None)]
    assert list(summary_of(rows)) == [
        "",
        "Over their capacity:",
        "  cluster  broker  direction  limits  needed at once",
        "  c        3       in         1,200%  25%",
        "  c        1       in         150%    25%",
    ]
    nothing = "No broker's limits are above its capacity, as far as that is there."
    assert list(summary_of([promise(4, None)])) == ["", nothing]
