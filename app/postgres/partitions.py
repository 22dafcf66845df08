"""The partitions that must be there before an intent can be."""

from typing import Final

from sqlalchemy import text

ENSURE_PARTITIONS: Final = text("select ensure_audit_partitions(1, 3)")
"""Makes what is missing from the month before to three months ahead; returns how many.

The function belongs to the owner of the log; the service may call it and do nothing else with
tables.
"""
