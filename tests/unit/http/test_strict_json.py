"""What strict JSON reads, what it refuses, and where it says the fault is."""

import json
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import UnreadableRequestError
from app.http.strict_json import MAX_DEPTH, JsonObject, parse_json, parse_object

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def faults(body: bytes) -> list[tuple[str, str]]:
    with pytest.raises(UnreadableRequestError) as caught:
        parse_object(body)
    assert caught.value.code == "unreadable-request"
    return [(one.pointer, one.code) for one in caught.value.violations]


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans())
def test_every_json_object_is_read_as_it_was_written(document: JsonObject, ascii_only: bool):
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert parse_object(body) == document


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_number_keeps_every_digit(number: Decimal):
    assert parse_json(str(number).encode()).compare_total(number) == 0


@pytest.mark.parametrize(
    "text", ["1" * 5000, "1e999", "-0.0", "5e-324", "0." + "0" * 4999 + "1", "9007199254740993"]
)
def test_an_odd_number_is_read_exactly(text: str):
    assert str(parse_object(f'{{"n":{text}}}'.encode())["n"]) == str(Decimal(text))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e99999999999999999999", "1E+9999"),
        ("-1e99999999999999999999", "-1E+9999"),
        ("1e-99999999999999999999", "1E-9999"),
        ("1E-10001", "1E-9999"),
        ("0e99999999999999999999", "0"),
        ("-0.0e20000", "-0"),
        ("1" * 20000, "1E+9999"),
    ],
)
def test_a_number_far_outside_float64_is_read_as_the_outermost_power(text: str, number: str):
    assert str(parse_object(f'{{"n":{text}}}'.encode())["n"]) == number


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_a_literal_that_json_lacks_is_refused_with_its_place(literal: str):
    assert faults(f'{{"a":[0,{{"b/~":{literal}}}]}}'.encode()) == [("/a/1/b~1~0", "not-json")]


def test_every_repeated_key_is_refused_with_its_place():
    body = b'{"a":{"x":1,"x":{"y":1,"y":2,"y":3}},"b":[{"c":1,"c":1}],"a":null}'
    assert faults(body) == [
        ("/a", "duplicate-json-key"),
        ("/a/x", "duplicate-json-key"),
        ("/a/x/y", "duplicate-json-key"),
        ("/b/0/c", "duplicate-json-key"),
    ]


def test_keys_that_differ_as_text_only_are_repeated():
    assert faults(b'{"a":1,"\\u0061":2}') == [("/a", "duplicate-json-key")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "not-json"),
        (b"{} {}", "not-json"),
        (b"{}x", "not-json"),
        (b"{,}", "not-json"),
        (b"{'a':1}", "not-json"),
        (b'{"a":01}', "not-json"),
        (b'{"a":1.}', "not-json"),
        (b'{"a":+1}', "not-json"),
        (b'{"a":0x10}', "not-json"),
        (b'{"a":"\x01"}', "not-json"),
        (b'{"a":1,}', "not-json"),
        ("{}\N{NO-BREAK SPACE}".encode(), "not-json"),
        (b"\xef\xbb\xbf{}", "not-json"),
        ("{}".encode("utf-16"), "not-utf-8"),
        ("{}".encode("utf-16-le"), "not-json"),
        (b'{"a":"\xed\xa0\x80"}', "not-utf-8"),
        (b'{"a":"\xff"}', "not-utf-8"),
        (b"1", "wrong-type"),
        (b"[]", "wrong-type"),
        (b'"text"', "wrong-type"),
        (b"null", "wrong-type"),
    ],
)
def test_what_is_not_one_json_object_in_utf_8_is_refused(body: bytes, code: str):
    assert faults(body) == [("", code)]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "The body is not JSON: it is empty."),
        (b" \n", "The body is not JSON: it is empty."),
        (b'{"a":"\x01"}', "The body is not JSON: Invalid control character at line 1, column 7."),
    ],
)
def test_the_sentence_says_what_is_wrong(body: bytes, detail: str):
    with pytest.raises(UnreadableRequestError) as caught:
        parse_object(body)
    assert str(caught.value) == detail


def nested(depth: int, opening: bytes = b'{"a":', closing: bytes = b"}") -> bytes:
    return opening * depth + b"1" + closing * depth


def test_the_deepest_nesting_allowed_is_read():
    value = parse_object(nested(MAX_DEPTH))
    for _ in range(MAX_DEPTH - 1):
        value = value["a"]
    assert value == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        nested(MAX_DEPTH + 1),
        nested(MAX_DEPTH // 2 + 1, b'{"a":[', b"]}"),
        nested(100_000, b"[", b"]"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"]\\"]": ' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    ],
    ids=["one-more", "mixed", "balanced", "open-arrays", "open-objects", "brackets-in-strings"],
)
def test_nesting_beyond_the_limit_is_refused(body: bytes):
    assert faults(body) == [("", "nested-too-deeply")]


def test_brackets_in_strings_are_not_nesting():
    text = '[{"\\' * 500
    assert parse_object(json.dumps({"a": text, text: [1]}).encode()) == {"a": text, text: [1]}


def test_many_siblings_are_not_nesting():
    assert len(parse_object(b'{"a":[' + b"[{}]," * 999 + b"[]]}")["a"]) == 1000


def test_many_brackets_that_do_not_match_are_not_json():
    assert faults(b'{"a":' + b"[]," * 100 + b"]}") == [("", "not-json")]


def test_a_lone_surrogate_stays_readable():
    assert parse_object(b'{"\\udfff":"a\\ud800"}') == {"\udfff": "a\ud800"}


def test_a_long_key_is_shortened_in_the_sentence_only():
    name = "k" * 1000
    with pytest.raises(UnreadableRequestError) as caught:
        parse_object(f'{{"{name}":1,"{name}":2}}'.encode())
    (violation,) = caught.value.violations
    assert violation.pointer == f"/{name}"
    assert len(violation.detail) < 150


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(body: bytes):
    with suppress(UnreadableRequestError):
        parse_json(body)
