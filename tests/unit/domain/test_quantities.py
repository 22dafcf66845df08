"""Values in words: as the page writes them; whatever is printed is read back, nothing else is."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.text import yaml_float
from app.domain.alterations import quota_value_json, read_decimal
from app.domain.quantities import bytes_in_words, factor_in_words, read_value, value_in_words
from app.domain.quota_keys import QuotaKey

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


P, R, M, I = (  # noqa: E741
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
    QuotaKey.CONNECTION_CREATION_RATE,
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def spellings(value: float) -> list[str]:
    """Return a float as Python, Java, YAML, JSON and a spreadsheet write it."""
    shortest = repr(value)
    return [
        shortest,
        shortest.upper(),
        shortest.replace("e+", "e").upper(),
        yaml_float(value),
        str(quota_value_json(value)),
        f"{value:.17E}",
        f"{value:f}" if value.is_integer() else shortest,
    ]


@given(FINITE)
def test_every_float_is_read_back_in_any_spelling(value: float):
    for text in spellings(value):
        read = read_value("a_key_of_tomorrow", text)
        assert float(read) == value if abs(value) != 2.0**63 else abs(float(read)) == 2.0**63


@pytest.mark.parametrize("value", [1.7976931348623157e308, 5e-324, 1e100, 2.0**63, -0.5])
def test_the_ends_of_float64_are_read(value: float):
    for text in spellings(value):
        assert float(read_value(R, text)) == value


def test_units_are_exact(subtests: pytest.Subtests):
    for key, text, value in [
        (P, "1048576", "1048576"),
        (P, "10MiB", "10485760"),
        (P, "10MB", "10000000"),
        (P, "10 KB", "10000"),
        (P, " 1.5GiB/s ", "1610612736"),
        (P, "500kB", "500000"),
        (P, "0.1KiB", "102.4"),
        (P, "-1", "-1"),
        (P, "1e6B", "1000000"),
        (P, f"{10**40 + 1}KiB", str((10**40 + 1) * 1024)),
        (P, "unlimited", str(2**63)),
        (I, "unlimited", "2147483647"),
        (R, "unlimited", "1000000000"),
        (R, "80%", "80"),
        (R, "12.5", "12.5"),
        (R, ".5%", "0.5"),
        (M, "5/s", "5"),
        (I, "020", "20"),
        ("unknown_key", "3", "3"),
    ]:
        with subtests.test(key=key, text=text, value=value):
            assert read_value(key, text) == Decimal(value)


def test_values_are_read_as_the_page_reads_them(subtests: pytest.Subtests):
    for case in CASES["typed"]:
        with subtests.test(**case):
            assert read_value(case["key"], case["text"]) == case["value"]
    for case in CASES["unreadable"]:
        with subtests.test(**case), pytest.raises(ValueError, match=case["key"]):
            read_value(case["key"], case["text"])


def test_words_stand_for_what_no_number_says():
    assert read_value(P, "unset") is None
    assert read_value("unknown_key", "unset") is None
    assert math.isnan(float(read_value(P, "NaN")))
    assert read_value(P, "-Infinity") == -math.inf


def test_what_is_no_value_of_the_key_is_refused(subtests: pytest.Subtests):
    for key, text, hint in [
        (P, "10M", "units of a byte rate are B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB (or none"),
        (P, "10mb", "units of a byte rate"),
        (P, "50%", "units of a byte rate"),
        (P, "", "not a number"),
        (P, "ten", "not a number"),
        (P, "12,5", "a fraction begins with a point"),
        (P, "nan", "not a number"),
        (P, "Unlimited", "not a number"),
        (P, "1_000", "not a number"),
        (P, "0x10", "not a number"),
        (P, "1e", "units of a byte rate"),
        (P, "9" * 1_001, "not a number"),
        (R, "50%/s", "the unit is %"),
        (R, "1MiB", "the unit is %"),
        (I, "20MB", "connection_creation_rate has no unit"),
        ("producer_byte_rat", "4MiB", "Did you mean producer_byte_rate?"),
        ("producer_byte_rat", "unlimited", "Did you mean producer_byte_rate?"),
    ]:
        with subtests.test(key=key, text=text):
            with pytest.raises(ValueError, match=key) as refused:
                read_value(key, text)
            assert hint in str(refused.value)


def test_the_text_of_what_is_no_quota_key_is_not_repeated():
    for key in ("password", "SCRAM-SHA-256", "SCRAM-SHA-256=[password=hunter2"):
        with pytest.raises(ValueError, match="Unknown quota key") as refused:
            read_value(key, "hunter2]")
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_no_exponent_fills_the_memory(sign: str):
    for text in ("1e9999999999999999999999", "1e-9999999999999999999999", "0e9999999999999999999"):
        assert abs(read_decimal(f"{sign}{text}").adjusted()) <= 9_999
