"""Names and values on the command line: what is displayed can be entered again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.entities import read_changes, read_name, read_names, read_value, show_value
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


def test_values_are_exact(subtests: pytest.Subtests):
    for key, text, value in [
        (P, "1048576", 1048576),
        (P, "10MiB", 10485760),
        (P, "10MB", 10000000),
        (P, "10 KB", 10000),
        (P, "1.5GiB/s", 1610612736),
        (P, "9223372036854775807", 9223372036854775807),
        (P, "0.1KiB", 102.4),
        (P, "-1", -1),
        (P, "1e6", 1000000),
        (R, "50%", 50),
        (R, "12.5", 12.5),
        (M, "5/s", 5),
        ("connection_creation_rate", "20", 20),
        ("unknown_key", "3", 3),
    ]:
        with subtests.test(key=key, text=text, value=value):
            read = read_value(key, text)
            assert (read, type(read)) == (value, type(value))


def test_what_is_no_number_of_the_key_is_refused(subtests: pytest.Subtests):
    for key, text in [
        (P, "10M"),
        (P, "10mb"),
        (P, "50%"),
        (P, ""),
        (P, "ten"),
        (P, "1,5"),
        (P, "NaN"),
        (P, "1_000"),
        (P, "0.12345678901234567890123"),
        (P, "9" * 50),
        (R, "50%/s"),
        (R, "1MiB"),
        ("connection_creation_rate", "20MB"),
    ]:
        with subtests.test(key=key, text=text), pytest.raises(UsageError, match=key):
            read_value(key, text)


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
