"""Domain values on their way out."""

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import AlterationResult, KafkaRefusal, Outcome
from app.domain.entities import ClientQuotaEntity
from app.http.answers import alteration_result_json, quota_json, quota_value_json
from app.http.json_text import json_bytes
from app.http.strict_json import parse_json

ALICE = ClientQuotaEntity.of({"user": "alice", "client-id": None})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024"),
        (0.5, "0.5"),
        (1235.0000001, "1235.0000001"),
        (2.0**53, "9007199254740992"),
        (2.0**63, "9223372036854775807"),
        (math.nextafter(2.0**63, 0), "9223372036854774784"),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        (5e-324, "5e-324"),
    ],
)
def test_a_stored_value_is_written_as_the_contract_says(value: float, text: str):
    assert json_bytes(quota_value_json(value)) == text.encode()


@pytest.mark.parametrize("value", [1e22, math.nextafter(2.0**63, math.inf), sys.float_info.max])
def test_an_integral_value_beyond_64_bits_is_written_as_a_float(value: float):
    written = quota_value_json(value)
    assert isinstance(written, float)
    assert float(json_bytes(written)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_value_comes_back_from_its_json(value: float):
    number = parse_json(json_bytes(quota_value_json(value)))
    assert float(number) == value


@given(st.floats(allow_nan=False, allow_infinity=False).filter(float.is_integer))
def test_no_integral_value_below_two_to_63_has_a_fraction(value: float):
    if abs(value) < 2**63:
        assert isinstance(quota_value_json(value), int)


def test_a_quota_has_its_entity_its_key_and_its_values_sorted():
    document = quota_json(ALICE, {"producer_byte_rate": 2.0, "consumer_byte_rate": 1.0})
    assert json_bytes(document) == (
        b'{"entity":{"user":"alice","client-id":null},"entity_key":"'
        + ALICE.key.encode()
        + b'","values":{"consumer_byte_rate":1,"producer_byte_rate":2}}'
    )


def test_a_result_has_every_member_even_where_nothing_is_known():
    assert alteration_result_json(AlterationResult(ALICE, Outcome.UNKNOWN)) == {
        "entity": {"user": "alice", "client-id": None},
        "outcome": "unknown",
        "changed": None,
        "before": None,
        "after": None,
        "error": None,
    }


def test_a_result_tells_values_refusal_and_warnings():
    result = AlterationResult(
        ALICE,
        Outcome.REFUSED,
        changed=False,
        before={"request_percentage": math.nan},
        after={},
        error=KafkaRefusal("INVALID_REQUEST", "no"),
        warnings=("careful",),
    )
    document = alteration_result_json(result)
    assert document["before"] == {"request_percentage": "NaN"}
    assert document["after"] == {}
    assert document["error"] == {"kafka_error": "INVALID_REQUEST", "message": "no"}
    assert document["warnings"] == ["careful"]


SCALARS = st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=8)


@given(st.dictionaries(st.text(st.characters(), max_size=5), SCALARS, max_size=5))
def test_every_text_can_be_encoded_lone_surrogates_and_large_integers_too(document: Any):
    encoded = json_bytes(document)
    encoded.decode("utf-8")
    assert json.loads(encoded) == json.loads(json.dumps(document))


def test_a_lone_surrogate_is_escaped():
    assert json_bytes(["\ud800"]) == b'["\\ud800"]'
