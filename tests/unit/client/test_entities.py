"""Names on the command line: what is shown can be given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.entities import read_name, read_names, show_entity, show_name
from app.client.errors import UsageError


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("user=alice,client-id=etl", [("user", "alice"), ("client-id", "etl")]),
        ("user=CN=alice", [("user", "CN=alice")]),
        (r"user=CN=alice\,OU=x,client-id=etl", [("user", "CN=alice,OU=x"), ("client-id", "etl")]),
        (r"user=a\,", [("user", "a,")]),
        (r"user=DOMAIN\\alice", [("user", "DOMAIN\\alice")]),
        (r"user=\<default>", [("user", "<default>")]),
        (r"user=\x1b\u202e\U0001f600", [("user", "\x1b\u202e\U0001f600")]),
        ("user=", [("user", "")]),
        ("user=<default>", [("user", "<default>")]),
    ],
)
def test_names_are_read(text: str, pairs: list[tuple[str, str]]):
    assert read_names(text, "--names") == pairs


@pytest.mark.parametrize(
    "text", ["", "alice", "user=a,", ",user=a", "group=a", "user=a,b", r"user=a\b", "user=a\\"]
)
def test_what_is_no_list_of_pairs_is_refused(text: str):
    with pytest.raises(UsageError):
        read_names(text, "--names")


def test_a_whole_name_has_no_escapes():
    assert read_name(r"user=CN=a\,b,c") == ("user", r"CN=a\,b,c")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_name_is_read_back_as_it_was_shown(name: str):
    shown = show_name(name)
    assert shown.isprintable()
    assert read_names(f"user={shown}", "--names") == [("user", name)]


def test_types_stand_in_the_order_of_answers_and_the_default_is_marked():
    assert show_entity({"client-id": "b", "user": None}) == "{user=<default>, client-id=b}"
    assert show_entity({"user": "<default>"}) == "{user=\\<default>}"
