"""The rules of right sizes: what a stored value should be, from what its buckets used.

A rule is one operation for all buckets, as there may be hundreds of thousands. Names, sentences and
bodies are made of what is advised alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.quota_keys import QUOTA_KEY_RULES, Scope
from app.domain.resolution_levels import PRECEDENCE, Slot
from app.domain.right_sizes import (
    CONFIDENT_FACTOR,
    HIDING_LEVEL,
    SizingRules,
    Why,
    action_of,
    allowed_value,
    limits_anything,
)
from app.pipeline.usage.measures import Numbers

_NUMBERS: Final = {why: number for number, why in enumerate(Why)}
REASONS: Final = tuple(Why)
"""By the number that stands for it in ``Advice.why``."""

_RAISE, _LOWER, _KEEP, _INSUFFICIENT = range(4)
ACTIONS: Final = ("raise", "lower", "keep", "insufficient")
_ACTIONS: Final = np.array([ACTIONS.index(action_of(why)) for why in Why])

_NO_SLOTS: Final = [Slot.ABSENT]
USER_SLOTS: Final = np.array([*_NO_SLOTS, *(row.user for row in PRECEDENCE)], object)
CLIENT_SLOTS: Final = np.array([*_NO_SLOTS, *(row.client_id for row in PRECEDENCE)], object)
"""By level."""

_IS_DEFAULT: Final = (USER_SLOTS == Slot.DEFAULT) | (CLIENT_SLOTS == Slot.DEFAULT)

Columns = Mapping[str, Numbers]
"""What buckets used on their busiest broker, beside the limit that each has now.

As in ``RECOMMENDATION`` (``rate`` is its ``percentile``), with ``median``, the percentile on the
median broker. ``key``, ``user`` and ``client`` are numbers that stand for names, those of '' 0.
"""


@dataclass(frozen=True, slots=True)
class Advice:
    """What is advised about values; ``row`` says of which bucket each is.

    Attributes:
        row: The busiest bucket that is judged with it.
        action: A number of ``ACTIONS``.
        why: A number of ``REASONS``.
        value: NaN for nothing.
        days: Of the data that it rests on; of a default the most that any of its buckets has.
        coverage: The same.
        has_own: Whether the bucket gets a value of its own, beside a default.
        no_own: Whether it would, but has an empty name.
        is_hiding: Whether it would, but that would hide other defaults.
    """

    row: Numbers
    action: Numbers
    why: Numbers
    value: Numbers
    target: Numbers
    saving: Numbers
    buckets: Numbers
    days: Numbers
    coverage: Numbers
    has_own: Numbers
    no_own: Numbers
    is_hiding: Numbers

    @property
    def is_default(self) -> Numbers:
        """Whether the advice is what a bucket needs more than a default."""
        return self.has_own | self.no_own | self.is_hiding


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the rules say of each bucket by itself."""

    why: Numbers
    value: Numbers
    target: Numbers

    @property
    def action(self) -> Numbers:
        found: Numbers = _ACTIONS[self.why]
        return found


def numbered(*columns: Any) -> tuple[list[Numbers], list[str]]:
    """Return numbers that stand for the names of some columns, in the order of the names.

    The number of '' is 0.
    """
    lengths = np.cumsum([len(column) for column in columns])[:-1]
    chunks = [chunk for column in columns for chunk in _chunks(column)]
    coded = pa.chunked_array([*chunks, pa.array([""])], pa.string()).combine_chunks()
    encoded = coded.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    numbers = rank[encoded.indices.to_numpy()[:-1]]
    return np.split(numbers, lengths), encoded.dictionary.take(order).to_pylist()


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def advise(use: Columns, keys: list[str], rules: SizingRules) -> Advice:
    """Judge all values that limit buckets of one cluster.

    A default is judged by all of its buckets together; one that needs more than it gets a value of
    its own, unless most do.

    Args:
        use: What each bucket used.
        keys: The names of the numbers of ``key``.
        rules: How advice is given.
    """
    judged = _judge(use, keys, rules)
    no_own = _has_empty_name(use)
    group, sizes = _groups(use)
    is_shared = _IS_DEFAULT[use["level"]] | no_own
    is_above = is_shared & (judged.action == _RAISE)
    above = np.bincount(group, is_above, len(sizes)) * CONFIDENT_FACTOR > sizes
    is_own = is_above & ~above[group]
    is_together = is_shared & ~is_own
    single = np.flatnonzero(~is_together)
    together = np.flatnonzero(is_together)
    own = _of_single(use, judged, single, keys)
    own |= {
        "buckets": sizes[group[single]],
        "no_own": (is_own & no_own)[single],
        "is_hiding": (is_own & ~no_own & _hides(use))[single],
    }
    own["has_own"] = is_own[single] & ~own["no_own"] & ~own["is_hiding"]
    is_left = own["no_own"] | own["is_hiding"]
    own["value"] = np.where(is_left, np.nan, own["value"])
    own["saving"] = np.where(is_left, 0.0, own["saving"])
    shared = _of_default(_Group(use, judged, together, group), keys, rules)
    shared["buckets"] = sizes[group[shared["row"]]]
    nothing = np.zeros(len(shared["row"]), bool)
    shared |= dict.fromkeys(("has_own", "no_own", "is_hiding"), nothing)
    return Advice(**{name: np.concatenate([own[name], shared[name]]) for name in own})


def _has_empty_name(use: Columns) -> Numbers:
    """Tell of which bucket the entity of its own would need a name that is empty."""
    level = use["level"]
    no_user = (USER_SLOTS != Slot.ABSENT)[level] & (use["user"] == 0)
    no_client = (CLIENT_SLOTS != Slot.ABSENT)[level] & (use["client"] == 0)
    found: Numbers = no_user | no_client
    return found


def _groups(use: Columns) -> tuple[Numbers, Numbers]:
    """Return which buckets spend from values of the same entity, and how many each has."""
    level = use["level"]
    user = np.where((USER_SLOTS == Slot.NAMED)[level], use["user"], 0)
    client = np.where((CLIENT_SLOTS == Slot.NAMED)[level], use["client"], 0)
    entity = np.stack([use["key"], level.astype(np.int64), user, client])
    order = np.lexsort(entity)
    is_first = np.zeros(len(level), bool)
    is_first[:1] = True
    is_first[1:] = (entity[:, order][:, 1:] != entity[:, order][:, :-1]).any(axis=0)
    group = np.empty(len(level), np.int64)
    group[order] = np.cumsum(is_first) - 1
    return group, np.bincount(group)


def _hides(use: Columns) -> Numbers:
    """Tell of which bucket a value of the user's own would limit other buckets, too."""
    pairs = use["key"] * (use["user"].max(initial=0) + 1) + use["user"]
    hidden = pairs[np.isin(use["level"], (4, 5))]
    found: Numbers = (use["level"] == HIDING_LEVEL) & np.isin(pairs, hidden)
    return found


def _judge(use: Columns, keys: list[str], rules: SizingRules) -> _Judged:
    """Judge each bucket by its own use."""
    limit, throttled, days = use["limit"], use["throttled_minutes"], use["days"]
    more = (
        np.minimum(use["median"], use["cluster_total"] - use["rate"]) if rules.skew_aware else 0.0
    )
    rate = use["rate"] + more
    target = _allowed(use["key"], np.maximum(rate * (1 + rules.margin), rules.floor), keys)
    needs = use["p95"] * (1 + rules.margin)
    tolerated = (
        np.floor(use["minutes"] * (100 - rules.percentile) / 100)
        if rules.tolerate is None
        else rules.tolerate
    )
    reasons = {
        Why.NO_LIMIT: ~_limiting(use, keys),
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
    value = np.full(len(limit), np.nan)
    for each, next_step in (
        (_RAISE, np.minimum(wanted, limit * rules.step_max)),
        (_LOWER, np.maximum(target, limit / rules.step_max)),
    ):
        rows = np.flatnonzero(action == each)
        value[rows] = _allowed(use["key"][rows], next_step[rows], keys)
    moves = np.where(action == _RAISE, value > limit, value < limit)
    is_stuck = ~np.isnan(value) & ~moves
    why = np.where(is_stuck, _NUMBERS[Why.NO_OTHER_VALUE], why)
    return _Judged(why, np.where(is_stuck, np.nan, value), target)


def _limiting(use: Columns, keys: list[str]) -> Numbers:
    pairs, positions = _distinct(use["key"], use["limit"])
    found = [limits_anything(keys[key], limit) for key, limit in pairs]
    return np.array(found, bool)[positions]


def _allowed(key: Numbers, values: Numbers, keys: list[str]) -> Numbers:
    pairs, positions = _distinct(key, values)
    found = [allowed_value(keys[number], value) for number, value in pairs]
    return np.array(found, float)[positions]


def _distinct(key: Numbers, values: Numbers) -> tuple[list[tuple[int, float]], Numbers]:
    """Return the distinct pairs, and which is that of each row: values of quotas repeat."""
    both = np.empty(len(values), [("key", np.int64), ("value", np.float64)])
    both["key"], both["value"] = key, values
    pairs, positions = np.unique(both, return_inverse=True)
    return pairs.tolist(), positions


def _of_single(use: Columns, judged: _Judged, rows: Numbers, keys: list[str]) -> dict[str, Numbers]:
    """Return what is advised about values of single buckets."""
    value = judged.value[rows]
    promised = _promised(use["brokers"][rows], use["key"][rows], keys)
    return {
        "row": rows,
        "action": judged.action[rows],
        "why": judged.why[rows],
        "value": value,
        "target": judged.target[rows],
        "saving": _saving(use["limit"][rows], value, promised),
        "days": use["days"][rows],
        "coverage": use["coverage"][rows],
    }


@dataclass(frozen=True, slots=True)
class _Group:
    """Buckets that are judged together, by the default that they spend from.

    Attributes:
        use: Of all buckets.
        judged: The same.
        rows: Which are judged together.
        group: Of each bucket.
    """

    use: Columns
    judged: _Judged
    rows: Numbers
    group: Numbers


def _of_default(found: _Group, keys: list[str], rules: SizingRules) -> dict[str, Numbers]:
    """Judge defaults by all of their buckets: each has to hold for the busiest of them."""
    use, judged = found.use, found.judged
    # The bucket with the highest target is last; of equal ones the lowest id.
    by = (~use["bucket_id"][found.rows], judged.target[found.rows], found.group[found.rows])
    rows = found.rows[np.lexsort(by)]
    group = found.group[rows]
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    if not len(begins):
        nothing = np.zeros(0, np.int64)
        return _of_single(use, judged, nothing, keys)
    busiest = rows[np.append(begins[1:], len(rows)) - 1]
    is_enough = judged.action[rows] != _INSUFFICIENT
    has_enough = np.logical_or.reduceat(is_enough, begins)
    most = {
        name: np.maximum.reduceat(np.where(is_enough, use[name][rows], 0), begins)
        for name in ("days", "coverage")
    }
    together = {name: column[busiest] for name, column in use.items()}
    together |= {
        name: np.where(has_enough, column, together[name]) for name, column in most.items()
    }
    advice = _judge(together, keys, rules)
    is_throttled = np.logical_or.reduceat(use["throttled_minutes"][rows] > 0, begins)
    is_left = has_enough & (advice.action == _LOWER) & is_throttled
    value = np.where(is_left, np.nan, advice.value)
    why = np.where(is_left, _NUMBERS[Why.OTHERS_THROTTLED], advice.why)
    brokers = np.add.reduceat(use["brokers"][rows].astype(np.int64), begins)
    promised = _promised(brokers, together["key"], keys)
    return {
        "row": busiest,
        "action": _ACTIONS[why],
        "why": why,
        "value": value,
        "target": advice.target,
        "saving": _saving(together["limit"], value, promised),
        "days": together["days"],
        "coverage": together["coverage"],
    }


def _promised(brokers: Numbers, key: Numbers, keys: list[str]) -> Numbers:
    """Return how many times a limit is promised."""
    of_broker = {name for name, rule in QUOTA_KEY_RULES.items() if rule.scope is Scope.PER_BROKER}
    return np.where(np.array([name in of_broker for name in keys])[key], brokers, 1)


def _saving(limit: Numbers, value: Numbers, promised: Numbers) -> Numbers:
    return np.where(np.isnan(value), 0.0, (limit - value) * promised)
