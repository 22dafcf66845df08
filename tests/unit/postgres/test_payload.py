import json
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import Op
from app.postgres.payload import (
    canonical_json,
    number_to_json,
    op_to_json,
    values_from_json,
    values_to_json,
)
from app.postgres.records import listed_op, op_from_json

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@given(ANY_TEXT)
def test_any_text_becomes_utf8_without_u0000_and_comes_back(text: str):
    written = canonical_json({text: text})
    assert b"\x00" not in written.encode()
    pairs_joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if pairs_joined == text:
        assert json.loads(written) == {text: text}


@pytest.mark.parametrize(("end", "written"), [("", ""), ("\ud800", "\\ud800")])
def test_json_is_canonical(end: str, written: str):
    document = {"b": [1, None, True], "a": {"é": f"\x00\n\u2028{end}", "d": 0.5}}
    assert canonical_json(document) == (
        f'{{"a":{{"d":0.5,"é":"\\u0000\\n\u2028{written}"}},"b":[1,null,true]}}'
    )


def test_a_number_is_written_as_json_can(subtests: pytest.Subtests):
    for value, written in [
        (1024.0, "1024"),
        (0.0, "0"),
        (-0.0, "-0.0"),
        (-3.0, "-3"),
        (2.0**63, "9223372036854775808"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (0.1, "0.1"),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
    ]:
        with subtests.test(value=value, written=written):
            assert json.dumps(number_to_json(value)) == written


@given(st.floats())
def test_every_float_comes_back_bit_for_bit(value: float):
    written = canonical_json({"v": values_to_json({"k": value})})
    read = values_from_json(json.loads(written)["v"])
    assert read is not None
    assert repr(read["k"]) == repr(value)


@given(st.decimals(allow_nan=False), st.booleans())
def test_every_digit_of_an_operation_comes_back(value: Decimal, remove: bool):
    op = Op("key", value, remove)
    read = op_from_json(json.loads(canonical_json(op_to_json(op))))
    assert read == op


def test_a_value_is_a_json_number_where_one_is_equal_to_it(subtests: pytest.Subtests):
    for value, written in [
        ("1024", 1024),
        ("1024.00", 1024),
        ("1e3", 1000),
        ("-5", -5),
        ("0.5", 0.5),
        ("9007199254740993", 9007199254740993),
        ("1e999", "1E+999"),
        ("1e400000000", "1E+400000000"),
        ("0.1000000000000000055", "0.1000000000000000055"),
    ]:
        with subtests.test(value=value):
            assert op_to_json(Op("k", Decimal(value))) == {"key": "k", "value": written}


def test_a_reader_sees_the_float_that_was_sent():
    assert listed_op({"key": "k", "value": "0.1000000000000000055"})["value"] == 0.1
    assert listed_op({"key": "k", "value": "1E+999"})["value"] == "1E+999"
    assert listed_op({"key": "k", "remove": True}) == {"key": "k", "remove": True}
