"""Times as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.times import read_time, rfc3339

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


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T01:02:03Z",
        "2026-11-21t01:02:03z",
        "2026-11-21T01:02:03.000000000Z",
        "2026-11-21T00:02:03-01:00",
        "2026-11-21T06:32:03+05:30",
    ],
)
def test_each_form_of_rfc_3339_is_read(text: str):
    time = read_time(text)
    assert time == datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
    assert time.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-21",
        "2026-11-21 01:02:03Z",
        "2026-11-21T01:02:03",
        "2026-11-21T01:02Z",
        "2026-11-21T01:02:03,5Z",
        "2026-W47-6T01:02:03Z",
        "2026-02-30T01:02:03Z",
        "2026-11-21T24:00:01Z",
        "2026-11-21T01:02:60Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-11-21T01:02:03+24:00",
        "\u0662026-11-21T01:02:03Z",
        "2026-11-21T01:02:03Z\n",
    ],
)
def test_anything_else_is_refused(text: str):
    with pytest.raises(ValueError, match=r"time|range|must be|month|isoformat"):
        read_time(text)
