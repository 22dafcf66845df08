"""What is exported plans to nothing; what is planned can be applied, and taken back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.client.commands import plan
from tests.integration.client.conftest import Command
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, entity_of

P, C, R, M, I = (  # noqa: E741
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
WORLD = {
    entity_of({"user": "<default>"}): {P: 2.0**63},
    entity_of({"user": None, "client-id": 'quo"te, comma: {brace} # \u00fc\n'}): {R: 0.1},
    entity_of({"user": "null", "client-id": None}): {C: 12345.0, P: 1.0},
    entity_of({"user": "x" * 512}): {C: 1.0},
    entity_of({"user": "oddmax"}): {R: 1.7976931348623157e308, M: 1e100, C: 1e-9},
    entity_of({"user": "\r=1+1", "client-id": "'a\vb\x85c\u2028d\u202e"}): {
        R: float("nan"),
        M: 5e-324,
    },
    entity_of({"ip": "2001:db8::1"}): {I: 3.0},
}

EXPORTS = [
    ("export",),
    ("export", "--output=json"),
    ("--describe", "--output=yaml"),
    ("--describe", "--output=json"),
    ("export", "--output=csv"),
    ("--describe", "--output=csv"),
]

DOCUMENT = """\
# What team-a wants.
quotas:
  - values: {producer_byte_rate: 10MiB}
    entity: {user: team-a-etl}
  - entity: {user: team-a-web, client-id: null}
    values:
      request_percentage: 12.5%
apiVersion: quotas/v1
"""


@pytest.mark.parametrize("words", EXPORTS, ids=" ".join)
def test_an_export_plans_to_nothing(
    command: Command, raw: RawQuotas, tmp_path: Path, words: tuple[str, ...]
):
    raw.become(WORLD)
    file = tmp_path / "quotas"
    file.write_text(command.printed(*words), encoding="utf-8", newline="")
    assert command.printed("plan", str(file)).splitlines()[-1] == "No changes."


def test_a_spreadsheet_of_500_users_is_one_command(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    raw.become({entity_of({"user": "u7"}): {R: 5.0}})
    file = tmp_path / "users.csv"
    rows = [f"u{number};{number + 1} MiB;{'unset' if number == 7 else ''}" for number in range(500)]
    heading = f"user;{P};{R}"
    file.write_bytes("\r\n".join(["\ufeff" + heading, *rows, ";;", ""]).encode())
    applied = command("apply", str(file), "--yes", "--owner=sheet")
    assert (applied.code, applied.out) == (0, "")
    wanted = {
        entity_of({"user": f"u{number}"}): {P: (number + 1) * 2.0**20} for number in range(500)
    }
    wait_until(lambda: raw.everything() == wanted)
    assert command.printed("plan", str(file), "--owner=sheet") == "No changes.\n"
    names = tmp_path / "names.csv"
    names.write_text("user\nu7\n")
    assert f"{P}={8 * 2**20} " in command.printed("resolve", str(names), "--what-if", str(file))


def test_a_large_document_is_applied_in_chunks_and_an_applied_plan_says_so(
    command: Command, raw: RawQuotas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plan, "_MOST_KEYS", 4)
    file = tmp_path / "users.csv"
    rows = [f"u{number},1MiB,2MiB\n" for number in range(5)]
    file.write_text(f"user,{P},{C}\n{''.join(rows)}")
    applied = command("apply", str(file), "--yes")
    assert (applied.code, applied.out) == (0, "")
    assert "The document is large: 3 chunks in its order" in applied.err
    for number in (1, 2, 3):
        assert f"Chunk {number} of 3: Applied: alteration " in applied.err
    values = {P: 2.0**20, C: 2.0**21}
    wanted = {entity_of({"user": f"u{number}"}): values for number in range(5)}
    wait_until(lambda: raw.everything() == wanted)
    again = command("plan", str(file))
    assert (again.code, again.out) == (0, "No changes.\n" * 3)
    pruning = command("apply", str(file), "--prune", "--yes")
    assert (pruning.code, "--prune needs a document of at most 4 keys" in pruning.err) == (2, True)
    file.write_text(f"user,{P}\nu0,3MiB\n")
    plan_id = json.loads(command("plan", str(file), "--output=json").out)["plan_id"]
    first, second = (command("apply", "--plan", plan_id, "--yes") for _ in range(2))
    assert (first.code, second.code) == (0, 0)
    alteration = first.err.splitlines()[-1].removeprefix("Applied: alteration ").rstrip(".")
    assert f"Already applied as {alteration} at " in second.err


def test_a_rule_that_a_table_breaks_is_reported_with_its_line(command: Command, tmp_path: Path):
    file = tmp_path / "users.csv"
    file.write_text(f"user,{P},{I}\nalice,4MiB,\nbob,0.5,\n")
    ran = command("plan", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert f"{file}:3 (/document/quotas/1/values/{P}): {{user=bob}}: " in ran.err
    file.write_text(f"user,{P}\nalice,4MX\nbob,5,6\n")
    ran = command("plan", str(file))
    assert (ran.code, ran.out) == (2, "")
    assert f"{file}:2: {{user=alice}} {P}=4MX: units of a byte rate are" in ran.err
    assert f"{file}:3: a cell stands in a column without a name" in ran.err


def test_a_plan_tells_what_would_change_by_its_exit_code(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    raw.become({entity_of({"user": "team-a-etl"}): {P: 1024.0, C: 5.0}})
    file = tmp_path / "quotas.yaml"
    file.write_text(DOCUMENT)
    planned = command("plan", str(file), "--owner", "team-a", principal="bob")
    assert (planned.code, planned.err) == (1, "")
    assert planned.out.splitlines()[:5] == [
        "{user=team-a-etl}",
        "  ~ producer_byte_rate  1024  ->  10485760  raised × 10,240",
        "",
        "{user=team-a-web, client-id=<default>}",
        "  + request_percentage  unset  ->  12.5  set",
    ]
    assert raw.everything() == {entity_of({"user": "team-a-etl"}): {P: 1024.0, C: 5.0}}


def test_a_reviewed_plan_is_applied_pruned_and_reverted(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    file, empty = tmp_path / "quotas.yaml", tmp_path / "empty.yaml"
    file.write_text(DOCUMENT)
    empty.write_text("apiVersion: quotas/v1\nquotas: []\n")
    options = ("--owner", "team-a", "--scope", "user^=team-a-")
    planned = command("plan", str(file), *options, "--output=json")
    applied = command("apply", "--plan", json.loads(planned.out)["plan_id"], "--reason", "INC-1")
    assert (planned.code, applied.code, applied.out) == (1, 0, "")
    both = {
        entity_of({"user": "team-a-etl"}): {P: 10485760.0},
        entity_of({"user": "team-a-web", "client-id": None}): {R: 12.5},
    }
    wait_until(lambda: raw.everything() == both)
    pruned = command("apply", str(empty), *options, "--prune", "--output=json")
    wait_until(lambda: raw.everything() == {})
    reverted = command("revert", json.loads(pruned.out)["alteration_id"])
    assert (pruned.code, reverted.code) == (0, 0)
    assert "To undo it: kafka-client-quotas revert " in reverted.err
    wait_until(lambda: raw.everything() == both)
    rows = json.loads(command.printed("audit", "--limit=2", "--output=json"))["rows"]
    assert [row["action"] for row in rows] == ["revert", "revert"]


def test_what_another_owner_holds_is_refused_without_force(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    file, other = tmp_path / "quotas.yaml", tmp_path / "other.yaml"
    file.write_text(DOCUMENT)
    other.write_text(DOCUMENT.replace("10MiB", "11MiB"))
    assert command("apply", str(file), "--owner=team-a").code == 0
    refused = command("apply", str(other), "--owner=team-b")
    assert refused.code == 1
    assert "--force" in refused.err
    assert command("apply", str(other), "--owner=team-b", "--force").code == 0
    wait_until(lambda: raw.everything()[entity_of({"user": "team-a-etl"})] == {P: 11534336.0})
    raw.become({**raw.everything(), entity_of({"user": "nobodys"}): {P: 5.0}})
    etl = f"{{user=team-a-etl}}\n{P}=11534336\n"
    web = f"{{user=team-a-web, client-id=<default>}}\n{R}=12.5\n"
    assert command.printed("--describe", "--owner=team-b") == etl
    assert command.printed("describe", "--owner=team-a") == web
    assert command.printed("describe", "--owner=team-a", "--owner=team-b") == f"{etl}\n{web}"
    rows = [line.split() for line in command.printed("owners").splitlines()]
    assert rows[1:] == [
        ["{user=team-a-etl}", P, "11534336", "team-b"],
        ["{user=team-a-web,", "client-id=<default>}", R, "12.5", "team-a"],
    ]
    exported = command.printed("export", "--owner=team-b", "--output=csv").splitlines()
    assert exported[1:] == [f"name,absent,absent,team-a-etl,,,{P},11534336"]
    assert command("owners", "--owner=nobody").err.startswith("Nothing found")


def test_a_rule_that_a_file_breaks_is_reported_with_its_line(command: Command, tmp_path: Path):
    file = tmp_path / "quotas.yaml"
    file.write_text(DOCUMENT.replace("10MiB", "0.5"))
    ran = command("plan", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert f"{file}:3 (/document/quotas/0/values/producer_byte_rate): " in ran.err
    assert "cannot be a fractional value" in ran.err


SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "ci" / "kafka-quotas-ci.sh"


def test_a_pipeline_plans_then_applies_and_is_refused_what_breaks_a_rule(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    file = tmp_path / "quotas.yaml"
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KAFKA_CLIENT_QUOTAS_SERVER": command.url,
        "KAFKA_QUOTAS_TOKEN": "alice",
        "KAFKA_QUOTAS_FILE": str(file),
        "KAFKA_QUOTAS_OPTIONS": "--owner team-a --prune",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }

    def run(value: str, **more: str) -> tuple[int, str]:
        file.write_text(f"quotas:\n  - entity: {{user: a}}\n    values: {{{P}: {value}}}\n")
        done = subprocess.run(
            ["sh", SCRIPT], env={**environ, **more}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    code, printed = run("5")
    assert (code, raw.everything()) == (0, {})
    assert "1 entity, 1 to set" in printed
    summary = (tmp_path / "summary").read_text()
    assert printed in summary
    assert run("0.5") == (1, "")
    assert (tmp_path / "summary").read_text() == summary, "there is no plan to show"
    assert run("5", KAFKA_QUOTAS_TOKEN="mallory")[0] == 3
    code, printed = run("5", KAFKA_QUOTAS_APPLY="true")
    assert code == 0
    assert printed.endswith("No changes. team-a owns nothing that would have to be removed.\n")
    wait_until(lambda: raw.everything() == {entity_of({"user": "a"}): {P: 5.0}})
