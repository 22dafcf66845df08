"""Inversion: the alteration that takes another one back."""

import math
from collections.abc import Mapping
from decimal import Decimal

from app.domain.alterations import ClientQuotaAlteration, Op, Values, same_value
from app.domain.entities import ClientQuotaEntity


def inverse(
    entity: ClientQuotaEntity, before: Values, after: Values
) -> ClientQuotaAlteration | None:
    """Return the alteration from ``after`` to ``before``; null where they are equal.

    Raises:
        ValueError: A value of ``before`` cannot be written by anybody but the tool that stored
            it, such as NaN.
    """
    ops = [
        _restored(key, before.get(key))
        for key in sorted(before.keys() | after.keys())
        if not same_value(before.get(key), after.get(key))
    ]
    return ClientQuotaAlteration(entity, tuple(ops)) if ops else None


def expected_after(before: Values, after: Values) -> Mapping[str, Decimal | float | None]:
    """Return what must hold for an alteration to be taken back: its ``after``, key by key."""
    return {key: after.get(key) for key in sorted(before.keys() | after.keys())}


def _restored(key: str, value: float | None) -> Op:
    if value is None:
        return Op(key, remove=True)
    if not math.isfinite(value):
        written = "NaN" if math.isnan(value) else "Infinity"
        message = f"{key} was {written} before, which this service does not write"
        raise ValueError(message)
    return Op(key, Decimal(value))
