"""Values for a time: what is read, what is refused, what their end does and leaves."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity
from app.domain.expiry import (
    TemporaryValue,
    broken_expiry,
    broken_returns,
    end_of,
    keys_changed_since,
    read_duration,
)

NOW = datetime(2026, 11, 27, tzinfo=UTC)
ALICE = ClientQuotaEntity.of({"user": "alice"})
P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


def test_a_duration_is_a_number_with_a_unit():
    read = {text: read_duration(text) for text in ("90s", "30m", "4h", "2d")}
    assert read == {
        "90s": timedelta(seconds=90),
        "30m": timedelta(minutes=30),
        "4h": timedelta(hours=4),
        "2d": timedelta(days=2),
    }
    assert read_duration("999999999d") > timedelta(days=90)
    for text in ("", "4", "h", "1.5h", "-4h", "4 h", "4h30m", "4H", "٤h", "1000000000s"):
        with pytest.raises(ValueError, match="not a duration"):
            read_duration(text)


def codes(expires_in: str | None = None, expires_at: timedelta | None = None) -> list[str]:
    lasts = None if expires_in is None else read_duration(expires_in)
    end = None if expires_at is None else NOW + expires_at
    return [violation.code for violation in broken_expiry(lasts, end, NOW)]


def test_an_end_is_within_bounds_and_either_a_duration_or_a_time():
    assert codes() == codes("60s") == codes("90d") == codes(None, timedelta(seconds=1)) == []
    assert codes("59s") == codes("91d") == codes(None, timedelta(days=91)) == ["out-of-range"]
    assert codes(None, timedelta()) == codes(None, timedelta(seconds=-1)) == ["time-has-passed"]
    assert codes("59s", timedelta(seconds=-1)) == [
        "two-expiries",
        "out-of-range",
        "time-has-passed",
    ]


def test_what_this_service_does_not_write_is_not_changed_for_a_time():
    ops = tuple(Op(key, Decimal(5)) for key in (P, C, R))
    stored = {ALICE: {P: float("nan"), C: 1000.0, R: 0.001}}
    broken = list(broken_returns([ClientQuotaAlteration(ALICE, ops)], stored))
    assert [violation.pointer for violation in broken] == [
        "/alterations/0/ops/0",
        "/alterations/0/ops/2",
    ]
    assert not list(broken_returns([ClientQuotaAlteration(ALICE, ops)], {}))


def test_the_end_sets_or_removes_and_leaves_what_has_neither_value():
    held = {
        key: TemporaryValue("id", ALICE, key, value, back, NOW, "User:ci")
        for key, value, back in ((P, 9.0, 5.0), (C, 8.0, None), (R, None, 7.0))
    }
    ops = end_of(held)
    assert ops == (Op(C, remove=True), Op(P, Decimal(5)), Op(R, Decimal(7)))
    expected = {key: value.value for key, value in held.items()}
    assert keys_changed_since({P: 9.0, C: 8.0}, ops, expected) == set()
    assert keys_changed_since({P: 5.0, R: 7.0}, ops, expected) == set()
    assert keys_changed_since({P: 6.0, C: 8.0, R: 6.0}, ops, expected) == {P, R}
