"""Values and factors in words: the cases that the page is held to as well."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.quantities import bytes_in_words, factor_in_words, value_in_words

CASES: Any = json.loads(
    (Path(__file__).resolve().parents[2] / "testkit" / "value_cases.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", CASES["values"], ids=lambda case: f"{case['key']}={case['value']}")
def test_a_value_has_its_unit(case: Any):
    assert value_in_words(case["key"], case["value"]) == case["text"]


@pytest.mark.parametrize("case", CASES["factors"], ids=lambda case: str(case["factor"]))
def test_a_factor_says_which_of_two_values_is_higher(case: Any):
    assert factor_in_words(case["factor"]) == case["text"]


@pytest.mark.parametrize(("value", "text"), [(math.inf, "Infinity"), (math.nan, "NaN")])
def test_what_is_no_number_is_named(value: float, text: str):
    assert value_in_words("request_percentage", value) == text


@given(st.floats(min_value=0.01, max_value=2.0**63))
def test_bytes_are_within_half_of_the_last_digit(value: float):
    number, unit = bytes_in_words(value).split(" ")
    power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    assert abs(float(number.replace(",", "")) - value / 1024**power) <= 0.005001
