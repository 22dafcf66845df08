"""What a script can tell from the exit code, and a person from the words."""

import json
import re
from pathlib import Path

from tests.integration.client.conftest import Command
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, entity_of

P, C = "producer_byte_rate", "consumer_byte_rate"
ALTER = ("--alter", "--names", "user=alice", "--add")


def test_a_refusal_is_1_and_names_every_violation_as_it_was_written(command: Command):
    ran = command(*ALTER, f"{P}=0.5,{C}=-1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count(f"--add {P}=0.5 (/alterations/0/ops/0/value)") == 2
    assert f"--add {C}=-1 (/alterations/0/ops/1/value): " in ran.err


def test_a_missing_right_is_3_and_says_which(command: Command):
    denied = command("--describe", principal="mallory")
    assert (denied.code, denied.out) == (3, "")
    assert "DESCRIBE_CONFIGS" in denied.err
    assert command(*ALTER, f"{P}=1", principal="bob").code == 3


def test_a_repeated_key_does_it_once(command: Command, raw: RawQuotas):
    words = (*ALTER, f"{P}=5", "--idempotency-key", "test-exit-codes-1", "--output=json")
    first, second = command(*words), command(*words)
    assert (first.code, second.code) == (0, 0)
    ids = {json.loads(ran.out)["alteration_id"] for ran in (first, second)}
    assert len(ids) == 1
    wait_until(lambda: raw.everything() == {entity_of({"user": "alice"}): {P: 5.0}})


def test_options_of_the_service_may_stand_on_either_side(command: Command, raw: RawQuotas):
    raw.become({entity_of({"user": "alice"}): {P: 5.0}})
    token = ("--token-file", str(command.tokens / "bob"))
    before = command("--server", "http://127.0.0.1:1", *token, "export")
    assert (before.code, before.out) == (0, command.printed("export"))


def test_every_identity_of_a_file_is_resolved(command: Command, raw: RawQuotas):
    raw.become({entity_of({"user": "alice"}): {P: 5.0}, entity_of({"user": None}): {P: 6.0}})
    file = command.tokens / "identities.csv"
    file.write_text('user,client-id\nalice,etl\n"b,c",\n')
    assert command.printed("resolve", str(file)) == (
        "{user=alice, client-id=etl}\nproducer_byte_rate=5 {user=alice}\n\n"
        "{user=b\\,c}\nproducer_byte_rate=6 {user=<default>}\n"
    )


def test_an_alteration_can_be_printed(command: Command, raw: RawQuotas):
    words = (*ALTER, f"{P}=5000", "--reason", "INC-4711", "--output=json")
    alteration = json.loads(command.printed(*words))["alteration_id"]
    printed = command.printed("show", alteration, "--wait")
    assert printed.startswith(f"Alteration {alteration}: applied\nby User:alice from 127.0.0.1\n")
    assert f"{{user=alice}}: applied\n  {P}: unset -> 5000\n" in printed
    assert command("show", alteration, principal="bob").code == 1


def test_the_caller_learns_what_it_may_do(command: Command):
    printed = command.printed("whoami", principal="bob")
    assert printed.startswith("User:bob\n")
    assert "  may: describe" in printed
    assert "  may not: alter" in printed


def test_hands_that_know_kafka_configs_are_understood(command: Command, raw: RawQuotas):
    alice = ("--entity-type", "users", "--entity-name", "alice")
    etl = ("--entity-type", "clients", "--entity-default")
    command.altered("--alter", *alice, *etl, "--add-config", f"{P}=5,{C}=6")
    command.altered("--alter", *alice, *etl, "--delete-config", C)
    command.altered("--alter", *alice, "--add-config", f"{P}=7")
    both = {"user": "alice", "client-id": None}
    wanted = {entity_of(both): {P: 5.0}, entity_of({"user": "alice"}): {P: 7.0}}
    wait_until(lambda: raw.everything() == wanted)
    assert command.printed("--describe", *alice) == f"{{user=alice}}\n{P}=7\n"
    assert command.printed("--describe", "--entity-type", "users") == f"{{user=alice}}\n{P}=7\n"


UNDO = re.compile(r"To undo it: kafka-client-quotas (revert [0-9a-f-]{36})\n")


def test_a_change_says_its_factor_and_the_id_that_undoes_it(command: Command, raw: RawQuotas):
    raw.become({entity_of({"user": "alice"}): {P: 5000.0}})
    printed = command.altered(*ALTER, f"{P}=10000")
    assert printed.startswith(f"{{user=alice}}: applied\n  {P}: 5000 -> 10000 (× 2)\n")
    undo = UNDO.search(printed)
    assert undo
    printed = command.altered(*undo[1].split())
    assert printed.startswith(f"{{user=alice}}: applied\n  {P}: 10000 -> 5000 (÷ 2)\n")
    wait_until(lambda: raw.everything() == {entity_of({"user": "alice"}): {P: 5000.0}})


def test_what_lowers_a_lot_needs_a_yes_in_a_script_and_has_a_warning(
    command: Command, raw: RawQuotas, tmp_path: Path
):
    world = {entity_of({"user": "alice"}): {P: 8.0 * 2**20}, entity_of({"user": "b"}): {P: 2e6}}
    raw.become(world)
    file = tmp_path / "low.csv"
    file.write_text(f"user,{P}\nalice,1\nb,10kB\n")
    lowered = f"{P} is lowered from 8 MiB/s to 1 B/s, ÷ 8,388,608."
    for words in ([*ALTER, f"{P}=1"], ["apply", str(file)]):
        ran = command(*words)
        assert (ran.code, ran.out) == (2, "")
        assert f"{{user=alice}}: {lowered}" in ran.err
        assert "--yes" in ran.err
    assert raw.everything() == world
    assert f"{{user=alice}}: warning: drastic: {lowered}\n" in command.altered(
        *ALTER, f"{P}=1", "--yes"
    )
    planned = json.loads(command("plan", str(file), "--output=json").out)
    sentence = f"{P} is lowered from 1.91 MiB/s to 9.77 KiB/s, ÷ 200."
    warning = {"entity": {"user": "b"}, "code": "drastic", "detail": sentence}
    assert planned["warnings"] == [warning]
    assert command("apply", "--plan", planned["plan_id"], "--yes").code == 0
    wait_until(lambda: raw.everything()[entity_of({"user": "b"})] == {P: 10_000.0})
