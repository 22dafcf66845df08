"""Each flag of kafka-configs is taken, or its counterpart is named and works."""

import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.unit.client.conftest import Reply, Run
from tests.unit.client.test_terminal import APPLIED

P = "producer_byte_rate"
NOTHING = Reply(200, {"quotas": []})


@pytest.mark.parametrize(
    ("flags", "filters"),
    [
        ("--entity-type users --entity-name alice", ["user=alice"]),
        ("--entity-type users --entity-name ''", ["user:default"]),
        ("--entity-type users --entity-default", ["user:default"]),
        ("--entity-type users", ["user:any"]),
        (
            "--entity-type users --entity-type clients --entity-name '' --entity-name etl",
            ["client-id=etl", "user:default"],
        ),
        ("--client etl", ["client-id=etl"]),
        ("--client-id etl", ["client-id=etl"]),
        ("--client-defaults", ["client-id:default"]),
        ("--user-defaults --client etl", ["client-id=etl", "user:default"]),
        ("--entity-type users --client etl", ["client-id=etl", "user:any"]),
        ("--ip 10.0.0.1 --all", ["ip=10.0.0.1"]),
        ("--ip-defaults --force", ["ip:default"]),
    ],
)
def test_the_flags_name_entities(flags: str, filters: list[str], run: Run):
    ran = run(["--describe", *shlex.split(flags)], NOTHING)
    assert ran.code == 0
    (asked,) = ran.service.asked
    query = parse_qsl(urlsplit(asked[1]).query)
    assert sorted(value for name, value in query if name == "filter") == filters
    assert ("strict", "true") in query


@pytest.mark.parametrize(
    ("flags", "entity"),
    [
        ("--entity-type users --entity-name ''", {"user": None}),
        ("--entity-type ips --entity-name 10.0.0.1", {"ip": "10.0.0.1"}),
        ("--client-defaults --user-defaults", {"user": None, "client-id": None}),
    ],
)
def test_the_flags_name_what_is_altered(flags: str, entity: dict[str, Any], run: Run):
    change = f"--add-config {P}=1,consumer_byte_rate=2 --delete-config request_percentage"
    ran = run(["--alter", "--yes", *shlex.split(f"{flags} {change}")], Reply(200, APPLIED))
    assert ran.code == 0
    ((*_, body),) = ran.service.asked
    assert body["alterations"] == [
        {
            "entity": entity,
            "ops": [
                {"key": P, "value": 1},
                {"key": "consumer_byte_rate", "value": 2},
                {"key": "request_percentage", "remove": True},
            ],
        }
    ]


def test_a_file_of_configs_is_read(run: Run, tmp_path: Path):
    file = tmp_path / "quotas.properties"
    file.write_text(f"# of etl\n{P} = 1MiB\n\nconsumer_byte_rate=2\n")
    ran = run(f"--alter --yes --client etl --add-config-file {file}", Reply(200, APPLIED))
    ((*_, body),) = ran.service.asked
    assert body["alterations"][0]["ops"] == [
        {"key": P, "value": 1048576},
        {"key": "consumer_byte_rate", "value": 2},
    ]


REFUSED = (
    "--bootstrap-server localhost:9092",
    "--bootstrap-controller localhost:9093",
    "--command-config admin.properties",
    "--zookeeper localhost:2181",
    "--zk-tls-config-file zk.properties",
    "--user alice --client etl",
)


@pytest.mark.parametrize("flags", REFUSED)
def test_what_is_suggested_works(flags: str, run: Run, tmp_path: Path):
    refused = run(f"--describe {flags}", NOTHING)
    assert (refused.code, refused.service.asked) == (2, [])
    (tmp_path / "token").write_text("secret")
    words = {"URL": "", "FILE": str(tmp_path / "token"), "user=NAME": "user=alice"}
    suggested = re.findall(r"(--[a-z-]+) (URL|FILE|[a-z-]+=NAME)", refused.err)
    assert suggested
    for option, metavar in suggested:
        if option != "--server":  # which each run has
            login = ["--user", "bob"] if option == "--password-file" else []
            ran = run(["--describe", *login, option, words[metavar]], NOTHING)
            assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    "flags",
    [
        *(f"{flag} x" for flag in ("--topic", "--broker", "--broker-logger", "--group")),
        "--client-metrics x",
        "--broker-defaults",
        *(f"--entity-type {kind}" for kind in ("brokers", "topics", "broker-loggers")),
    ],
)
def test_what_has_no_quotas_is_refused(flags: str, run: Run):
    ran = run(f"--describe {flags}", NOTHING)
    assert (ran.code, ran.service.asked) == (2, [])
    assert "quotas" in ran.err
