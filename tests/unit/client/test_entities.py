"""Names and values on the command line: what is displayed can be entered again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.entities import read_changes, read_name, read_names, show_value
from app.client.errors import UsageError
from app.domain.entities import show_entity, show_name


def test_names_are_read(subtests: pytest.Subtests):
    for text, pairs in [
        ("user=alice,client-id=etl", [("user", "alice"), ("client-id", "etl")]),
        ("user=CN=alice", [("user", "CN=alice")]),
        (r"user=CN=alice\,OU=x,client-id=etl", [("user", "CN=alice,OU=x"), ("client-id", "etl")]),
        (r"user=a\,", [("user", "a,")]),
        (r"user=DOMAIN\\alice", [("user", "DOMAIN\\alice")]),
        (r"user=\<default>", [("user", "<default>")]),
        (r"user=\x1b\u202e\U0001f600", [("user", "\x1b\u202e\U0001f600")]),
        ("user=", [("user", "")]),
        ("user=<default>", [("user", "<default>")]),
    ]:
        with subtests.test(text=text):
            assert read_names(text, "--names") == pairs


def test_what_is_no_list_of_pairs_is_refused(subtests: pytest.Subtests):
    for text in ["", "alice", "user=a,", ",user=a", "group=a", "user=a,b", r"user=a\b", "user=a\\"]:
        with subtests.test(text=text), pytest.raises(UsageError):
            read_names(text, "--names")


def test_a_whole_name_has_no_escapes():
    assert read_name(r"user=CN=a\,b,c") == ("user", r"CN=a\,b,c")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_name_is_read_as_it_is_printed(name: str):
    text = show_name(name)
    assert text.isprintable()
    assert read_names(f"user={text}", "--names") == [("user", name)]


def test_types_stand_in_the_order_of_answers_and_the_default_is_marked():
    assert show_entity({"client-id": "b", "user": None}) == "{user=<default>, client-id=b}"
    assert show_entity({"user": "<default>"}) == "{user=\\<default>}"


P, R, M = "producer_byte_rate", "request_percentage", "controller_mutation_rate"


def test_values_are_sent_exactly(subtests: pytest.Subtests):
    for key, text, value in [
        (P, "1048576", 1048576),
        (P, "1.5GiB/s", 1610612736),
        (P, "9223372036854775807", 9223372036854775807),
        (P, "9007199254740993", 9007199254740993),
        (P, "unlimited", 9223372036854775808),
        (P, "0.1KiB", 102.4),
        (P, "1e6", 1000000),
        (R, "1.7976931348623157E308", 1.7976931348623157e308),
        (R, "5e-324", 5e-324),
        (R, "1e22", 1e22),
    ]:
        with subtests.test(key=key, text=text, value=value):
            (op,) = read_changes([f"{key}={text}"], [])
            assert (op["value"], type(op["value"])) == (value, type(value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_only_a_finite_number_can_be_set(text: str):
    with pytest.raises(UsageError, match="finite"):
        read_changes([f"{R}={text}"], [])


def test_unset_removes():
    assert read_changes([f"{P}=unset"], []) == [{"key": P, "remove": True}]


def test_changes_are_read_in_order():
    assert read_changes([f"{P}=1KiB,{R}=5"], [M]) == [
        {"key": P, "value": 1024},
        {"key": R, "value": 5},
        {"key": M, "remove": True},
    ]


@pytest.mark.parametrize(("add", "delete"), [([P], []), ([], [f"{P}=1"]), ([""], [])])
def test_changes_that_cannot_be_read_are_refused(add: list[str], delete: list[str]):
    with pytest.raises(UsageError):
        read_changes(add, delete)


def test_values_are_printed_exactly(subtests: pytest.Subtests):
    for value, text in [
        (9223372036854775807, "9223372036854775807"),
        (0.1, "0.1"),
        ("NaN", "NaN"),
        (1e22, "1e+22"),
    ]:
        with subtests.test(text=text):
            assert show_value(value) == text
