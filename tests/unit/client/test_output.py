"""What a terminal gets, and what a pipe gets."""

import io
from typing import Any

import pytest

from app.client.commands import audit, resolve
from app.client.commands.plan import plan_lines
from app.client.imports.collection import Collection
from app.client.output import Progress, Style, table
from tests.unit.client.conftest import PLAN

PLAIN = """\
{user=alice}
  ~ producer_byte_rate  1024  ->   2048  raised × 2, but 1 entity goes before it
  - request_percentage    50  ->  unset  removed, then 80.5 of {user=<default>}

Held by other owners:
  {user=alice}  producer_byte_rate  of team\\x1b[b:  holds 1024,  is 1024,  planned 2048

Not pruned, because another caller has changed them since:
  {user=bob}  producer_byte_rate=7

warning: {user=*} No\\x1b default.

Plan p1: 1 entity, 1 to set, 1 to remove, 1 conflict; valid until 2026-11-22T00:00:00.000Z.
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_longest_cell_moves_nothing_in_other_rows():
    rows = [["user", "key", "id"], ["W" * 512, "rate", "1"], ["alice", "rate", "2"]]
    heading, long, short = table(rows, right=(1,))
    assert long == f"{'W' * 512}  rate  1"
    assert heading.index("id") == short.index("2") == 68


def test_a_plan_has_columns_and_what_the_service_says_of_its_impact():
    assert "".join(f"{line}\n" for line in plan_lines(PLAN, Style(coloured=False))) == PLAIN


def test_colours_add_nothing_but_colours():
    lines = list(plan_lines(PLAN, Style(coloured=True)))
    assert "\x1b[31m  - request_percentage" in "\n".join(lines)
    plain = "\n".join(lines)
    for code in ("0", "1", "2", "31", "32", "33"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == PLAIN.rstrip("\n")


@pytest.mark.parametrize(
    ("stream", "wish", "environ", "coloured"),
    [
        (Terminal(), "auto", {}, True),
        (io.StringIO(), "auto", {}, False),
        (Terminal(), "auto", {"NO_COLOR": "1"}, False),
        (Terminal(), "auto", {"TERM": "dumb"}, False),
        (Terminal(), "never", {}, False),
        (io.StringIO(), "always", {"NO_COLOR": "1"}, True),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    stream: io.StringIO,
    wish: str,
    environ: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert Style.of(stream, wish).coloured is coloured


def test_columns_are_aligned_without_blanks_at_the_end():
    assert table([["a", "10", "x"], ["bbb", "5", ""]], right=(1,)) == ["a    10  x", "bbb   5"]
    assert table([]) == []
    # A letter of East Asia takes two columns of a terminal, an accent on another letter none.
    assert table([["用户", "x"], ["e\u0301t\u00e9", "y"], ["abcd", "z"]]) == [
        "用户  x",
        "e\u0301t\u00e9   y",
        "abcd  z",
    ]


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr("app.client.output.time.monotonic", lambda: next(clock))
    written = {}
    for stream in (Terminal(), io.StringIO()):
        progress = Progress("rows", stream)
        progress.tell(5, 1000)
        progress.end()
        written[stream.isatty()] = stream.getvalue()
    assert written == {True: "\r\x1b[Krows: 5 of 1,000\r\x1b[K", False: ""}


def test_a_factor_says_how_much_more_or_less_it_is():
    change: Any = PLAN["changes"][0]
    for factor, written in {
        2000.0: "× 2,000",
        0.00005: "÷ 20,000",
        10485760.0: "× 10,485,760",
    }.items():
        keys = change["impact"]["keys"]
        keys = keys | {"producer_byte_rate": {**keys["producer_byte_rate"], "factor": factor}}
        plan = {**PLAN, "changes": [{**change, "impact": {"keys": keys}}]}
        assert f"raised {written}," in "\n".join(plan_lines(plan, Style(coloured=False)))


def test_a_row_displays_what_differs():
    ops = [{"key": "k", "value": 150}, {"key": "l", "value": 2}, {"key": "m", "remove": True}]
    row = {"before": {"k": 150, "m": 7}, "after": {"k": 150, "l": 2}, "ops": ops}
    assert audit._change({**row, "outcome": "applied"}) == "l: 2, m: 7 -> removed"
    assert audit._change({**row, "outcome": "refused"}) == "k: 150, l: 2, m: removed"
    assert audit._change({**row, "outcome": "unknown", "after": None}) == "k: 150, l: 2, m: removed"
    same = {**row, "outcome": "applied", "after": row["before"]}
    assert audit._change({**same, "ops": ops[:1]}) == "nothing differs"


def test_a_note_names_its_identities_unless_it_is_about_all():
    users: list[Any] = [{"identity": {"user": name}, "notes": ["for all"]} for name in "abcdef"]
    for result in users[1:]:
        result["notes"] = [*result["notes"], "for some"]
    assert list(resolve._notes(users)) == [
        "Note: for all",
        "Note for {user=b}, {user=c}, {user=d} and 2 more: for some",
    ]


def test_an_import_has_types_in_the_order_of_an_export():
    collection = Collection("file")
    collection.add({"user": "a", "client-id": "b"}, "producer_byte_rate", "5", 1)
    (quota,) = collection.quotas()
    assert list(quota["entity"]) == ["user", "client-id"]


def test_a_plan_says_what_was_changed_outside_since_an_owner_applied_it():
    change: Any = PLAN["changes"][0]
    since = {"changed_since": {"owner": "team\x1b-a", "value": 8388608}}
    keys = {key: {**impact, **since} for key, impact in change["impact"]["keys"].items()}
    plan = {**PLAN, "changes": [{**change, "impact": {"keys": keys}}]}
    _, raised, removed, *_ = plan_lines(plan, Style(coloured=False))
    sentence = ", changed outside since team\\x1b-a applied 8388608"
    assert raised.endswith(f"raised × 2{sentence}, but 1 entity goes before it")
    assert removed.endswith(f"removed{sentence}, then 80.5 of {{user=<default>}}")
