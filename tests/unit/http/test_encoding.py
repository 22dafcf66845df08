"""Domain values and times as text."""

import json
import math
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import AlterationResult, KafkaRefusal, Outcome
from app.domain.entities import ClientQuotaEntity
from app.http.models import (
    json_bytes,
    quota_json,
    quota_value_json,
    read_time,
    result_json,
    rfc3339,
)
from app.http.validation import parse_json

ALICE = ClientQuotaEntity.of({"user": "alice", "client-id": None})


def test_a_stored_value_is_written_as_the_contract_says(subtests: pytest.Subtests):
    for value, text in [
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
    ]:
        with subtests.test(value=value, text=text):
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


@given(st.integers(-(2**63) + 1024, 2**63 - 1024).map(float))
def test_no_integral_value_below_two_to_63_has_a_fraction(value: float):
    assert isinstance(quota_value_json(value), int)


def test_a_quota_has_its_entity_its_key_and_its_values_sorted():
    document = quota_json(ALICE, {"producer_byte_rate": 2.0, "consumer_byte_rate": 1.0})
    assert json_bytes(document) == (
        b'{"entity":{"user":"alice","client-id":null},"entity_key":"'
        + ALICE.key.encode()
        + b'","values":{"consumer_byte_rate":1,"producer_byte_rate":2}}'
    )


def written(result: AlterationResult) -> Any:
    return json.loads(json_bytes(result_json(result)))


def test_a_result_has_every_member_even_where_the_outcome_is_unknown():
    assert written(AlterationResult(ALICE, Outcome.UNKNOWN)) == {
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
    document = written(result)
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


def test_a_refused_name_with_a_lone_surrogate_is_written_as_it_came():
    entity = ClientQuotaEntity.of({"user": "\ud800"})
    error = KafkaRefusal(None, "\ud800 is no Unicode text")
    document = written(AlterationResult(entity, Outcome.REFUSED, error=error, warnings=("\ud800",)))
    assert document["entity"] == {"user": "\ud800"}
    assert document["error"]["message"] == error.message
    assert document["warnings"] == ["\ud800"]


ZONES = st.timezones() | st.integers(-1439, 1439).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)


def test_a_time_is_written_in_utc_with_milliseconds():
    zone = timezone(timedelta(hours=1))
    assert rfc3339(datetime(2026, 11, 21, 2, 2, 3, 456999, zone)) == "2026-11-21T01:02:03.456Z"
    assert rfc3339(datetime(900, 1, 1, tzinfo=UTC)) == "0900-01-01T00:00:00.000Z"


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES))  # noqa: DTZ001
def test_a_written_time_is_read_back_to_the_millisecond(time: datetime):
    assert timedelta(0) <= time - read_time(rfc3339(time)) < timedelta(milliseconds=1)


TIMES = """
    2026-11-21T01:02:03Z 2026-11-21t01:02:03z 2026-11-21T01:02:03.000000000Z
    2026-11-21T00:02:03-01:00 2026-11-21T06:32:03+05:30
"""
NO_TIMES = """
    now 2026-11-21 2026-11-21T01:02:03 2026-11-21T01:02Z 2026-11-21T01:02:03,5Z
    2026-W47-6T01:02:03Z 2026-02-30T01:02:03Z 2026-11-21T24:00:01Z 2026-11-21T01:02:60Z
    0000-01-01T00:00:00Z 0001-01-01T00:00:00+01:00 9999-12-31T23:59:59-01:00
    2026-11-21T01:02:03+24:00 \u0662026-11-21T01:02:03Z
"""


def test_each_form_of_rfc_3339_is_read(subtests: pytest.Subtests):
    for text in TIMES.split():
        with subtests.test(text=text):
            time = read_time(text)
            assert time == datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
            assert time.utcoffset() == timedelta(0)


def test_anything_else_is_refused(subtests: pytest.Subtests):
    for text in [*NO_TIMES.split(), "", "2026-11-21 01:02:03Z", "2026-11-21T01:02:03Z\n"]:
        with (
            subtests.test(text=text),
            pytest.raises(ValueError, match=r"time|range|must be|month|isoformat"),
        ):
            read_time(text)
