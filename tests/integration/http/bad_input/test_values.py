"""Numbers that are no quota: refused with their pointer, before anything is sent."""

import pytest

from tests.integration.http.bad_input.conftest import Post
from tests.testkit.http import assert_refused

VALUE = "/alterations/0/ops/0/value"
KAFKA = "INVALID_REQUEST"
USER, IP = '{"user": "bad"}', '{"ip": "192.0.2.1"}'
P, C = "producer_byte_rate", "consumer_byte_rate"
R, M = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"


def setting(key: str, number: str, entity: str = USER) -> str:
    op = f'{{"key": "{key}", "value": {number}}}'
    return f'{{"alterations": [{{"entity": {entity}, "ops": [{op}]}}]}}'


NOT_JSON = [
    *("NaN", "Infinity", "-Infinity"),
    *("nan", "0x10", "01", "+1", ".5", "1.", "1_000", "1e", "1,5", "1 000", "\u0661", "undefined"),
]


def test_what_is_no_json_number_cannot_be_read(post: Post, subtests: pytest.Subtests) -> None:
    for number in NOT_JSON:
        with subtests.test(number=number):
            pointer = VALUE if number in {"NaN", "Infinity", "-Infinity"} else ""
            assert_refused(post(setting(P, number)), 400, {(pointer, "not-json")})


def test_another_type_is_not_taken_for_a_number(post: Post, subtests: pytest.Subtests) -> None:
    for value in ['"1000"', '"NaN"', '"Infinity"', "true", "false", "null", "[1]", '{"value": 1}']:
        with subtests.test(value=value):
            assert_refused(post(setting(P, value)), 400, {(VALUE, "wrong-type")})


TINY, HUGE = "5e-324", "1e999"
DIGITS = "9" * 5000

UNACCEPTABLE: dict[str, tuple[str, str, set[str], str | None]] = {
    "0": (P, "0", {"not-positive"}, KAFKA),
    "0.0": (C, "0.0", {"not-positive"}, KAFKA),
    "-0.0": (R, "-0.0", {"not-positive"}, KAFKA),
    "-0": (M, "-0", {"not-positive"}, KAFKA),
    "negative": (P, "-1", {"not-positive"}, KAFKA),
    "negative for a fractional key": (R, "-0.5", {"not-positive"}, KAFKA),
    "1e-999, which is 0 as a float": (R, "1e-999", {"below-minimum"}, None),
    "the smallest float": (P, TINY, {"fraction", "below-minimum"}, None),
    "the smallest float as a percentage": (R, TINY, {"below-minimum"}, None),
    "1e-9, which a broker takes": (P, "1e-9", {"fraction", "below-minimum"}, None),
    "0.5 bytes": (C, "0.5", {"fraction", "below-minimum"}, KAFKA),
    "1.5 bytes": (C, "1.5", {"fraction"}, KAFKA),
    "1.0000001, which a broker takes": (P, "1.0000001", {"fraction"}, None),
    "1 and 10^-40, which is 1 as a float": (P, f"1.{'0' * 39}1", {"fraction"}, None),
    "2^53 + 1": (P, "9007199254740993", {"not-exact"}, None),
    "2^53 + 1 as a percentage": (R, "9007199254740993", {"above-maximum"}, None),
    "2^63 - 2": (P, "9223372036854775806", {"not-exact"}, None),
    "2^63 + 1": (P, "9223372036854775809", {"above-maximum"}, KAFKA),
    "2^63 + 2048": (C, "9223372036854777856", {"above-maximum"}, KAFKA),
    "2^64": (C, "18446744073709551616", {"above-maximum"}, KAFKA),
    "1e999": (P, HUGE, {"not-finite"}, KAFKA),
    "1e999 as a percentage": (R, HUGE, {"not-finite"}, None),
    "-1e999": (M, f"-{HUGE}", {"not-positive"}, KAFKA),
    "an exponent of its own size": (P, f"1e{'9' * 400}", {"not-finite"}, KAFKA),
    "5,000 digits": (P, DIGITS, {"not-finite"}, KAFKA),
    "5,000 digits after the point": (R, f"0.{'0' * 4999}1", {"below-minimum"}, None),
    "one hundredth of a hundredth percent": (R, "0.0001", {"below-minimum"}, None),
    "just below the smallest percentage": (R, "0.00999", {"below-minimum"}, None),
    "just below the smallest rate": (M, "0.00999", {"below-minimum"}, None),
    "above the largest percentage": (R, "1000000000.1", {"above-maximum"}, None),
    "above the largest rate": (M, "1000000001", {"above-maximum"}, None),
}


def test_a_number_that_breaks_a_rule_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (key, number, codes, kafka_error) in UNACCEPTABLE.items():
        with subtests.test(name=name):
            problem = assert_refused(
                post(setting(key, number)), 422, {(VALUE, code) for code in codes}
            )
            assert problem["kafka_error"] == kafka_error


CONNECTIONS: dict[str, set[str]] = {
    "0": {"not-positive"},
    "0.5": {"fraction", "below-minimum"},
    "1e-9": {"fraction", "below-minimum"},
    "1.0000001": {"fraction"},
    "2147483648": {"above-maximum"},
    "2147483647.5": {"fraction", "above-maximum"},
    "9223372036854775807": {"above-maximum"},
}


def test_a_connection_rate_that_would_lock_out_or_overflow_is_refused(
    post: Post, subtests: pytest.Subtests
) -> None:
    for number, codes in CONNECTIONS.items():
        for entity in [IP, '{"ip": null}']:
            with subtests.test(number=number, entity=entity):
                violations = {(VALUE, code) for code in codes}
                assert_refused(post(setting(CONNECTION_RATE, number, entity)), 422, violations)


def test_the_same_numbers_are_refused_in_a_what_if(post: Post, subtests: pytest.Subtests) -> None:
    for name in ["0", "2^53 + 1", "1e999", "the smallest float"]:
        with subtests.test(name=name):
            key, number, codes, _ = UNACCEPTABLE[name]
            body = setting(key, number).replace("{", '{"identities": [{"user": "bad"}], ', 1)
            answer = post(body, path="/quotas/resolve")
            assert_refused(answer, 422, {(VALUE, code) for code in codes})


def test_every_bad_number_of_a_request_is_listed_at_once(post: Post) -> None:
    ops = [
        {"key": P, "value": 0},
        {"key": C, "value": 1.5},
        {"key": R, "value": 1e12},
        {"key": M, "value": -3},
    ]
    alterations = [
        {"entity": {"user": "bad"}, "ops": ops},
        {"entity": {"user": "worse"}, "ops": ops},
    ]
    codes = ("not-positive", "fraction", "above-maximum", "not-positive")
    violations = {
        (f"/alterations/{index}/ops/{position}/value", code)
        for index in range(2)
        for position, code in enumerate(codes)
    }
    assert_refused(post({"alterations": alterations}), 422, violations)
