"""The rules of right sizes for columns have the same bits as those for one bucket."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis.strategies import lists

from app.domain.right_sizes import (
    BucketUse,
    Figures,
    RightSize,
    SizingRules,
    own_value_in_words,
    right_sizes,
    sentence,
)
from app.pipeline.advice.judgement import ACTIONS, REASONS, advise, numbered
from tests.unit.domain.test_right_sizes import RULES, uses

NUMBERS = (
    *("bucket_id", "level", "limit", "broker_id", "p95", "rate", "median", "cluster_total"),
    *("brokers", "days", "coverage", "minutes", "throttled_minutes"),
)


def advice_of(found: list[BucketUse], rules: SizingRules) -> dict[int, tuple[Any, ...]]:
    """Return by the row of a bucket what the columns advise."""
    (user, client), _ = numbered([use.user for use in found], [use.client_id for use in found])
    (key,), keys = numbered([use.key for use in found])
    columns = {name: np.array([getattr(use, name) for use in found]) for name in NUMBERS}
    columns["bucket_id"] = columns["bucket_id"].astype(np.int64)
    advice = advise({**columns, "key": key, "user": user, "client": client}, keys, rules)
    rows = {}
    for at, row in enumerate(advice.row.tolist()):
        use, target = found[row], float(advice.target[at])
        figures = Figures(
            use.key,
            int(advice.days[at]),
            float(advice.coverage[at]),
            use.minutes,
            use.throttled_minutes,
            use.p95,
            target,
        )
        reason = sentence(REASONS[advice.why[at]], figures, rules)
        if advice.is_default[at]:
            words = own_value_in_words(
                use.entity,
                None if advice.no_own[at] else use.own_entity,
                is_hiding=bool(advice.is_hiding[at]),
            )
            reason = f"{reason} {words}"
        value = float(advice.value[at])
        rows[row] = (
            ACTIONS[advice.action[at]],
            None if np.isnan(value) else value,
            target,
            float(advice.saving[at]),
            int(advice.buckets[at]),
            bool(advice.has_own[at]),
            reason,
        )
    return rows


def figures_of(each: RightSize) -> tuple[Any, ...]:
    """Return the same of the advice about one value."""
    has_own = each.entity != each.use.entity
    return (
        each.action.value,
        each.value,
        each.target,
        each.saving,
        each.buckets,
        has_own,
        each.reason,
    )


@given(
    lists(uses(), min_size=1, max_size=12, unique_by=lambda use: (use.key, use.bucket_id)), RULES
)
@settings(deadline=None)
def test_columns_are_judged_as_buckets_are(found: list[BucketUse], rules: SizingRules):
    rows = {(use.key, use.bucket_id): row for row, use in enumerate(found)}
    expected = {
        rows[each.use.key, each.use.bucket_id]: figures_of(each)
        for each in right_sizes(found, rules)
    }
    assert advice_of(found, rules) == expected
