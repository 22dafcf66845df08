"""The examples of KIP-546, byte for byte, on a real broker.

Where the proposal leaves the order of blocks open it is that of the service: the default before
names, names by code point.
"""

import subprocess
import sys

import pytest

from tests.integration.client.conftest import Command
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas, entity_of

P, C = "producer_byte_rate", "consumer_byte_rate"

DESCRIBED = {
    entity_of({"user": "user-one", "client-id": "my-client"}): {C: 4000000.0, P: 1000000.0},
    entity_of({"user": "user-two", "client-id": "my-client"}): {P: 2000000.0},
    entity_of({"user": None, "client-id": "my-client"}): {C: 1000000.0, P: 500000.0},
}

DESCRIBE_OUTPUT = """\
{user=<default>, client-id=my-client}
consumer_byte_rate=1000000
producer_byte_rate=500000

{user=user-one, client-id=my-client}
consumer_byte_rate=4000000
producer_byte_rate=1000000

{user=user-two, client-id=my-client}
producer_byte_rate=2000000
"""

RESOLVE_OUTPUT = """\
consumer_byte_rate=2000000 {user=user-two, client-id=my-client}
producer_byte_rate=500000 {user=<default>, client-id=my-client}
"""

PREFIX_OUTPUT = DESCRIBE_OUTPUT.partition("\n\n")[2]

SHOW_OVERRIDDEN_OUTPUT = """\
consumer_byte_rate=1000000 {user=<default>, client-id=my-client}
producer_byte_rate=2000000 {user=user-two, client-id=my-client}
*producer_byte_rate=500000 {user=<default>, client-id=my-client}
"""

SET_AND_INHERITED_OUTPUT = """\
{user=user-two, client-id=my-client}
consumer_byte_rate=1000000 {user=<default>, client-id=my-client} (inherited)
producer_byte_rate=2000000 {user=user-two, client-id=my-client} (set here)
*producer_byte_rate=500000 {user=<default>, client-id=my-client} (overridden)
"""


def test_describe_prints_the_block_of_each_entity(command: Command, raw: RawQuotas):
    raw.become(DESCRIBED)
    assert command.printed("--describe", "--names=client-id=my-client") == DESCRIBE_OUTPUT


def test_the_command_is_a_program(
    command: Command, raw: RawQuotas, monkeypatch: pytest.MonkeyPatch
):
    raw.become(DESCRIBED)
    monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_SERVER", command.url)
    monkeypatch.setenv("KAFKA_CLIENT_QUOTAS_TOKEN_FILE", str(command.tokens / "bob"))
    words = ["-m", "app.client.cli", "--describe", "--names", "client-id=my-client"]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, DESCRIBE_OUTPUT, "")


def test_resolve_prints_each_value_with_its_source(command: Command, raw: RawQuotas):
    two = entity_of({"user": "user-two", "client-id": "my-client"})
    raw.become({**DESCRIBED, two: {C: 2000000.0}})
    words = ("--resolve", "--names=user=user-two,client-id=my-client")
    assert command.printed(*words, principal="bob") == RESOLVE_OUTPUT


def test_alter_prints_nothing_and_is_described(command: Command, raw: RawQuotas):
    raw.become(DESCRIBED)
    entity = ("--names=client-id=my-client", "--defaults=user")
    changes = (f"--add={C}=2000000", f"--delete={P}")
    assert f"{C}: 1000000 -> 2000000 (× 2)" in command.altered("--alter", *entity, *changes)
    assert command.printed("--describe", *entity) == (
        "{user=<default>, client-id=my-client}\nconsumer_byte_rate=2000000\n"
    )


def test_the_first_drafts_prefix_describes_names_that_begin_so(command: Command, raw: RawQuotas):
    raw.become(DESCRIBED)
    assert command.printed("--describe", "--prefix=user=user-") == PREFIX_OUTPUT


def test_a_search_describes_and_exports_what_has_the_text_in_some_name(
    command: Command, raw: RawQuotas
):
    raw.become(DESCRIBED)
    assert command.printed("--describe", "--search=USER-") == PREFIX_OUTPUT
    everything = command.printed("--describe")
    assert command.printed("--describe", "--search=client", "--search=MY-") == everything
    assert "user: user-one" in command.printed("export", "--search", "r-O")
    assert "user: user-one" not in command.printed("export", "--search", "user-two")


def test_the_first_drafts_show_overridden_marks_what_loses(command: Command, raw: RawQuotas):
    raw.become(DESCRIBED)
    words = ("--names=user=user-two,client-id=my-client", "--show-overridden")
    assert command.printed("--resolve", *words) == SHOW_OVERRIDDEN_OUTPUT
    assert command.printed("--describe", *words) == SET_AND_INHERITED_OUTPUT


def test_what_matches_nothing_is_no_error_and_no_output(command: Command):
    ran = command("--describe", "--names", "user=nobody")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "Nothing found: no entity with quotas matches.\n"


def test_validate_only_changes_nothing(command: Command, raw: RawQuotas):
    raw.become(DESCRIBED)
    words = ("--alter", "--names", "user=user-two,client-id=my-client", "--add", f"{P}=1")
    assert "drastic" in command.altered(*words, "--validate-only")
    assert raw.everything() == DESCRIBED


@pytest.mark.parametrize(
    "name", ["a,b=c", "<default>", "back\\slash", "\u202egpj.exe", "a\x1b[31m"]
)
def test_any_name_can_be_altered_and_is_read_as_it_is_printed(
    command: Command, raw: RawQuotas, name: str
):
    ran = command("--alter", "--name", f"user={name}", "--add", f"{P}=7")
    assert (ran.code, ran.out) == (0, "")
    wait_until(lambda: raw.everything() == {entity_of({"user": name}): {P: 7.0}})
    printed = command.printed("--describe")
    assert printed.replace("\n", "").isprintable()
    pair = printed.splitlines()[0].strip("{}")
    assert command.printed("--describe", "--names", pair) == printed
