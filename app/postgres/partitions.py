"""The partitions that must be there before an intent can be."""

from typing import Final

from sqlalchemy import text

ENSURE_PARTITIONS: Final = text("select ensure_audit_partitions(1, 3)")
"""Makes what is missing from the month before to three months ahead; returns how many.

The function belongs to the owner of the log; the service may call it and do nothing else with
tables.
"""

MONTHS_AHEAD: Final = text(
    """
    select coalesce(min(step) filter (where to_regclass(to_char(
      (now() at time zone 'UTC') + make_interval(months => step), '"audit_event_y"YYYY"m"MM'
    )) is null), 25) - 1
    from generate_series(0, 24) as step
    """
)
"""How many months after the present one have a partition, without a gap; -1 where it has none."""
