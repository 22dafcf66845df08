"""Tables of the command as CSV: a name is one cell, whatever it holds."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.unit.client.conftest import Reply, Run

NAMES = [f"a{mark}b" for mark in "\v\f\x85\u2028\u2029\r\n"] + ["\r=1+1", "\n=1+1", "'a", "=1", "-"]
KEY = "producer_byte_rate"
LIMITED = {
    "value": 5,
    "unit": "bytes/s",
    "scope": "per_broker",
    "source": {"entity": {"user": None}, "level": 6, "name": "default-user"},
    "overridden": [],
}


def test_a_name_makes_no_row_and_no_formula_of_its_own(run: Run, tmp_path: Path):
    file = tmp_path / "identities.json"
    file.write_text(json.dumps([{"user": name} for name in NAMES]))
    results = [
        {"identity": {"user": name}, "quotas": {KEY: LIMITED}, "notes": []} for name in NAMES
    ]
    ran = run(["resolve", str(file), "--output=csv"], Reply(200, {"results": results}))
    heading, *rows = csv.reader(io.StringIO(ran.out, newline=""), strict=True)
    assert (ran.code, heading[:3]) == (0, ["user", "client-id", "ip"])
    assert [row[0] for row in rows] == [
        f"'{name}" if name[0] in "\r\n'=-" else name for name in NAMES
    ]
    assert {tuple(row[1:]) for row in rows} == {
        ("", "", KEY, "5", "default-user", "{user=<default>}")
    }


@pytest.mark.parametrize("name", ["a\vb", "a\x85b", "a\u2028b"])
def test_on_a_terminal_a_name_makes_no_row_either(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    body = {"quotas": {name: LIMITED}, "notes": []}
    ran = run(["--resolve", "--names", "user=a", "--output=csv"], Reply(200, body))
    assert len(ran.out.split("\n")) == 3
    assert name.isprintable() or name not in ran.out
