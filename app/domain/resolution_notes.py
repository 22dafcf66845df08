"""Sentences about stored values that do not limit as they read, and about spellings."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final

from app.domain.quota_keys import INT_MAX, TWO_TO_63, QuotaKey
from app.domain.resolution_values import ResolvedQuota

_BYTE_RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_FRACTIONAL: Final = (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)
_CONNECTIONS: Final = (QuotaKey.CONNECTION_CREATION_RATE,)

_ODD_VALUES: Final[tuple[tuple[tuple[QuotaKey, ...], Callable[[float], bool], str], ...]] = (
    (
        _BYTE_RATES,
        lambda value: value >= TWO_TO_63,
        "2^63 bytes/s is the customary override for unlimited: it does not limit.",
    ),
    (_FRACTIONAL, lambda value: value == math.inf, "infinity does not limit."),
    (
        _CONNECTIONS,
        lambda value: value >= INT_MAX,
        "2147483647 means not limited: brokers switch the limit off for this address.",
    ),
    (
        _CONNECTIONS,
        lambda value: not value >= 1,
        "a connection rate below 1, or NaN, is taken as 0: every connection is rejected.",
    ),
    (
        (QuotaKey.PRODUCER_BYTE_RATE, *_FRACTIONAL),
        math.isnan,
        "NaN does not limit: nothing is ever throttled.",
    ),
    (
        (QuotaKey.CONSUMER_BYTE_RATE,),
        math.isnan,
        "NaN does not throttle, but each fetch returns one batch only.",
    ),
)
"""Which values of which keys do not mean what they say. Source: the brokers' quota managers."""

ORDINARY_FROM: Final = 1
ORDINARY_BELOW: Final = INT_MAX
"""Values in between mean what they say, for each key."""

HIDDEN_CLIENT_RULES: Final = (
    "The user name is empty and the default user has this key: brokers then look up no client-id "
    "rule, so nothing limits."
)


def value_notes(quota: ResolvedQuota) -> Sequence[str]:
    """Say where the value that applies does not limit, or locks out."""
    return () if quota.value is None else notes_of(quota.key, quota.value)


def notes_of(key: str, value: float) -> Sequence[str]:
    """Say where a value does not limit, or locks out; no other value has notes."""
    if ORDINARY_FROM <= value < ORDINARY_BELOW:
        return ()
    return [
        f"{key}: {sentence}"
        for keys, is_odd, sentence in _ODD_VALUES
        if key in keys and is_odd(value)
    ]


def spelling_note(address: str, names: Sequence[str]) -> str:
    """Say how an address is stored, the name that is shown first."""
    first, *others = names
    if not others:
        return f"The address {address} is stored as {first!r}, which is not its canonical text."
    why = "the canonical text" if first == address else "none is canonical; the first by name"
    return (
        f"The address {address} is stored as {first!r} and also as {_listed(others)}; "
        f"{first!r} is shown ({why}). Brokers enforce whichever was applied last."
    )


def host_names_note(host_names: Collection[str]) -> str:
    """Say which stored limits could not be considered."""
    return (
        f"Limits stored under host names ({_listed(sorted(host_names))}) are left out: each broker "
        "looked the names up for itself, and one of them may be this address."
    )


def _listed(names: Sequence[str]) -> str:
    some = ", ".join(repr(name) for name in names[:3])
    return f"{some} and {len(names) - 3} more" if len(names) > 3 else some
