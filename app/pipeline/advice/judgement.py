"""The rules of right sizes: what a stored value should be, from what its buckets used.

A rule is one operation for all buckets, as there may be hundreds of thousands. Names, sentences and
bodies are made of what is advised alone.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.quota_keys import QUOTA_KEY_RULES, Scope
from app.domain.resolution_levels import Slot
from app.domain.right_sizes import (
    CONFIDENT_FACTOR,
    HIDING_LEVEL,
    SizingRules,
    Why,
    action_of,
    allowed_value,
    limits_anything,
)
from app.pipeline.resolve.levels import CLIENT_ID_SLOT, USER_SLOT
from app.pipeline.usage.measures import Numbers, begins_of, ends_of

_NUMBERS: Final = {why: number for number, why in enumerate(Why)}
REASONS: Final = tuple(Why)
"""By the number that stands for it."""

_RAISE, _LOWER, _KEEP, _INSUFFICIENT = range(4)
ACTIONS: Final = ("raise", "lower", "keep", "insufficient")
_ACTIONS: Final = np.array([ACTIONS.index(action_of(why)) for why in Why])

_OF_VALUE: Final = (
    *("key", "limit", "brokers", "action", "why", "value", "target", "days", "coverage"),
)
_IS_DEFAULT: Final = (USER_SLOT == Slot.DEFAULT) | (CLIENT_ID_SLOT == Slot.DEFAULT)

Columns = Mapping[str, Numbers]
"""What buckets used on their busiest broker, beside the limit that each has now.

As in ``RECOMMENDATION`` (``rate`` is its ``percentile``), with ``median``, the percentile on the
median broker. ``key``, ``user`` and ``client`` are numbers that stand for names, those of '' 0.
"""


def numbered(*columns: pa.ChunkedArray) -> tuple[list[Numbers], list[str]]:
    """Return numbers that stand for the names of some columns, in the order of the names.

    The number of '' is 0.
    """
    chunks = [chunk for column in columns for chunk in column.chunks]
    texts = pa.chunked_array([*chunks, pa.array([""])], pa.string())
    names = sorted(texts.unique().to_pylist())
    numbers = pc.index_in(texts, pa.array(names)).to_numpy().astype(np.int64)
    return np.split(numbers, np.cumsum([len(column) for column in columns]))[:-1], names


def advise(use: Columns, keys: list[str], rules: SizingRules) -> dict[str, Numbers]:
    """Judge all values that limit buckets of one cluster.

    A default is judged by all of its buckets together; one that needs more than it gets a value of
    its own, unless most do.

    Args:
        keys: The names of the numbers of ``key``.

    Returns:
        For each value ``row``, the busiest bucket that is judged with it; numbers of ``ACTIONS``
        and ``REASONS`` as ``action`` and ``why``; ``value``, NaN for nothing; ``target``,
        ``saving`` and ``buckets``; ``days`` and ``coverage`` of the data that it rests on, of a
        default the most that any of its buckets has. ``has_own`` says that the bucket gets a value
        of its own, beside a default, ``no_own`` that it would, but has an empty name, and
        ``is_hiding`` that it would, but that would hide other defaults.
    """
    judged = {**use, **_judge(use, keys, rules)}
    is_nameless = _has_empty_name(use)
    group, sizes = _groups(use)
    is_shared = _IS_DEFAULT[use["level"]] | is_nameless
    is_above = is_shared & (judged["action"] == _RAISE)
    above = np.bincount(group, is_above, len(sizes)) * CONFIDENT_FACTOR > sizes
    is_own = is_above & ~above[group]
    by_itself = len(sizes) + np.arange(len(group))
    found = _together(judged, np.where(is_shared & ~is_own, group, by_itself), keys, rules)
    row, is_hiding = found["row"], is_own & ~is_nameless & _hides(use)
    found |= {
        "has_own": (is_own & ~is_nameless & ~is_hiding)[row],
        "no_own": (is_own & is_nameless)[row],
        "is_hiding": is_hiding[row],
        "buckets": sizes[group[row]],
    }
    value = np.where(found["no_own"] | found["is_hiding"], np.nan, found["value"])
    key, limit, brokers = (found.pop(name) for name in ("key", "limit", "brokers"))
    of_broker = {name for name, rule in QUOTA_KEY_RULES.items() if rule.scope is Scope.PER_BROKER}
    # A limit of each broker is promised by all of them.
    promised = np.where(np.array([name in of_broker for name in keys])[key], brokers, 1)
    saving = np.where(np.isnan(value), 0.0, (limit - value) * promised)
    return {**found, "value": value, "saving": saving}


def _has_empty_name(use: Columns) -> Numbers:
    """Tell of which bucket the entity of its own would need a name that is empty."""
    level = use["level"]
    no_user = (USER_SLOT != Slot.ABSENT)[level] & (use["user"] == 0)
    no_client = (CLIENT_ID_SLOT != Slot.ABSENT)[level] & (use["client"] == 0)
    found: Numbers = no_user | no_client
    return found


def _groups(use: Columns) -> tuple[Numbers, Numbers]:
    """Return which buckets spend from values of the same entity, and how many each has."""
    level = use["level"]
    user = np.where((USER_SLOT == Slot.NAMED)[level], use["user"], 0)
    client = np.where((CLIENT_ID_SLOT == Slot.NAMED)[level], use["client"], 0)
    of_level = use["key"] * len(USER_SLOT) + level
    entity = (of_level * (user.max(initial=0) + 1) + user) * (client.max(initial=0) + 1) + client
    _, group, sizes = np.unique(entity, return_inverse=True, return_counts=True)
    return group, sizes


def _hides(use: Columns) -> Numbers:
    """Tell of which bucket a value of the user's own would limit other buckets, too."""
    pairs = use["key"] * (use["user"].max(initial=0) + 1) + use["user"]
    hidden = pairs[np.isin(use["level"], (4, 5))]
    found: Numbers = (use["level"] == HIDING_LEVEL) & np.isin(pairs, hidden)
    return found


def _judge(use: Columns, keys: list[str], rules: SizingRules) -> dict[str, Numbers]:
    """Judge each bucket by its own use."""
    limit, throttled, days = use["limit"], use["throttled_minutes"], use["days"]
    more = (
        np.minimum(use["median"], use["cluster_total"] - use["rate"]) if rules.skew_aware else 0.0
    )
    rate = use["rate"] + more
    least = np.maximum(rate * (1 + rules.margin), rules.floor)
    target = _of_pairs(allowed_value, use["key"], least, keys)
    needs = use["p95"] * (1 + rules.margin)
    tolerated = (
        np.floor(use["minutes"] * (100 - rules.percentile) / 100)
        if rules.tolerate is None
        else rules.tolerate
    )
    reasons = {
        Why.NO_LIMIT: ~_of_pairs(limits_anything, use["key"], limit, keys).astype(bool),
        Why.FEW_DAYS: days < rules.min_days,
        Why.FEW_MINUTES: use["coverage"] < rules.min_coverage,
        Why.THROTTLED: throttled > tolerated,
        Why.TOO_LOW: limit < needs,
        Why.FITS: limit <= CONFIDENT_FACTOR * target * (1 + 1 / days),
        Why.MAY_WANT_MORE: throttled > 0,
    }
    numbers = [_NUMBERS[reason] for reason in reasons]
    why = np.select(list(reasons.values()), numbers, _NUMBERS[Why.TOO_HIGH])
    action = _ACTIONS[why]
    wanted = np.where(throttled > 0, np.inf, np.maximum(target, needs))
    higher = np.minimum(wanted, limit * rules.step_max)
    lower = np.maximum(target, limit / rules.step_max)
    value, rows = np.full(len(limit), np.nan), np.flatnonzero(np.isin(action, (_RAISE, _LOWER)))
    step = np.where(action == _RAISE, higher, lower)[rows]
    value[rows] = _of_pairs(allowed_value, use["key"][rows], step, keys)
    moves = np.where(action == _RAISE, value > limit, value < limit)
    is_stuck = ~np.isnan(value) & ~moves
    why = np.where(is_stuck, _NUMBERS[Why.NO_OTHER_VALUE], why)
    value = np.where(is_stuck, np.nan, value)
    return {"why": why, "action": _ACTIONS[why], "value": value, "target": target}


def _of_pairs(
    rule: Callable[[str, float], float], key: Numbers, values: Numbers, keys: list[str]
) -> Numbers:
    """Return what a rule makes of each key and value, once of those that are the same."""
    both = np.empty(len(values), [("key", np.int64), ("value", np.float64)])
    both["key"], both["value"] = key, values
    pairs, positions = np.unique(both, return_inverse=True)
    found: Numbers = np.array([rule(keys[number], value) for number, value in pairs.tolist()])
    return found[positions]


def _together(
    judged: Columns, group: Numbers, keys: list[str], rules: SizingRules
) -> dict[str, Numbers]:
    """Judge values by all of their buckets: each has to hold for the busiest of them.

    Args:
        judged: All buckets, and what the rules say of each by itself.
        group: A number of each bucket, the same for those that are judged together.
    """
    # The bucket with the highest target is last; of equal ones the lowest id.
    rows = np.lexsort((~judged["bucket_id"], judged["target"], group))
    begins = begins_of(group[rows])
    busiest = rows[ends_of(begins, len(rows))]
    is_enough = judged["action"][rows] != _INSUFFICIENT
    has_enough = np.logical_or.reduceat(is_enough, begins)
    found = {name: column[busiest] for name, column in judged.items()}
    for name in ("days", "coverage"):
        most = np.maximum.reduceat(np.where(is_enough, judged[name][rows], 0), begins)
        found[name] = np.where(has_enough, most, found[name])
    found |= _judge(found, keys, rules)
    is_throttled = np.logical_or.reduceat(judged["throttled_minutes"][rows] > 0, begins)
    is_left = has_enough & (found["action"] == _LOWER) & is_throttled
    found["value"] = np.where(is_left, np.nan, found["value"])
    found["why"] = np.where(is_left, _NUMBERS[Why.OTHERS_THROTTLED], found["why"])
    found["action"] = _ACTIONS[found["why"]]
    found["brokers"] = np.add.reduceat(judged["brokers"][rows].astype(np.int64), begins)
    return {"row": busiest, **{name: found[name] for name in _OF_VALUE}}
