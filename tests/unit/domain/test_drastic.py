"""Changes that may take away what somebody works with."""

import math
from decimal import Decimal

import pytest

from app.domain.alterations import Op
from app.domain.drastic import drastic_changes, drastic_warnings

P, R = "producer_byte_rate", "request_percentage"
MIB = 2**20


@pytest.mark.parametrize(
    ("key", "before", "after", "sentence"),
    [
        (P, 8 * MIB, 1, f"{P} is lowered from 8 MiB/s to 1 B/s, ÷ 8,388,608."),
        (P, 2**63, MIB, f"{P} is lowered from unlimited to 1 MiB/s."),
        (P, 100 * MIB, MIB, f"{P} is lowered from 100 MiB/s to 1 MiB/s, ÷ 100."),
        (P, 2000, 1023, f"{P} is lowered from 1.95 KiB/s to 1,023 B/s, ÷ 1.96."),
        (P, 500, 400, f"{P} is lowered from 500 B/s to 400 B/s, ÷ 1.25."),
        (P, None, 1023, f"{P} is 1,023 B/s, which lets next to nothing through."),
        (R, 200, 2, f"{R} is lowered from 200 % to 2 %, ÷ 100."),
        (P, 100 * MIB, MIB + 1, None),
        (P, 2000, 1024, None),
        (P, None, 1024, None),
        (P, 400, 500, None),
        (P, 400, 400, None),
        (P, MIB, None, None),
        (R, None, 0.01, None),
        (R, math.nan, 0.01, None),
    ],
)
def test_what_lowers_by_a_hundred_times_or_to_next_to_nothing_is_drastic(
    key: str, before: float | None, after: float | None, sentence: str | None
):
    values = {} if before is None else {key: float(before)}
    op = Op(key, remove=True) if after is None else Op(key, Decimal(str(after)))
    found = list(drastic_changes(values, [op]))
    assert [each.detail for each in found] == ([] if sentence is None else [sentence])
    assert [each.lowers for each in found] == [before is not None for _ in found]
    assert drastic_warnings(values, [op]) == tuple(f"drastic: {each.detail}" for each in found)
