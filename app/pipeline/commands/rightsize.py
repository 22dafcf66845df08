"""Say what each stored value should be: ``recommendation``.

Reads ``bucket_hour`` and ``dim_bucket`` below each ``--input``, of the newest days, and replaces
the advice about their clusters. Nothing is applied: each row has the body that would do it.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from app.domain.entities import show_entity
from app.domain.quantities import value_in_words
from app.domain.right_sizes import Action, SizingRules
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.output import advise, write_advice
from app.pipeline.advice.sizes import advice_of, uses_of
from app.pipeline.advice.use import MOST_DAYS
from app.pipeline.job import Job
from app.pipeline.options import number_option
from app.pipeline.summary import columns, key_name
from app.pipeline.tables import RECOMMENDATION

DAYS: Final = 14
"""So many days are looked at, unless ``--days`` says otherwise."""

_RULES: Final = SizingRules()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how advice is given."""
    add_sizing_options(parser)
    days_option(parser, DAYS)
    parser.epilog = "A finding is a value to raise or to lower."


def days_option(parser: argparse.ArgumentParser, default: int) -> None:
    """Add how many days are looked at."""
    parser.add_argument(
        "--days",
        type=number_option(1, MOST_DAYS, int),
        default=default,
        metavar="N",
        help=f"look at the newest N days; default {default}",
    )


def add_sizing_options(parser: argparse.ArgumentParser) -> None:
    """Add the rules of a right size."""
    group = parser.add_argument_group("right sizes")
    for name, settings, text in _OF_RULES:
        group.add_argument(name, help=text, **settings)
    parser.set_defaults(**{name: getattr(_RULES, name) for name in _OPTIONS})


_OPTIONS: Final = ("percentile", "margin", "floor", "step_max", "tolerate", "skew_aware")
_OF_RULES: Final[Sequence[tuple[str, Mapping[str, Any], str]]] = (
    (
        "--percentile",
        {"type": number_option(50, 100, int), "metavar": "N"},
        f"of the minutes that a value is to hold for; default {_RULES.percentile}",
    ),
    (
        "--margin",
        {"type": number_option(0, 100), "metavar": "SHARE"},
        f"what is added to their rate; default {_RULES.margin}",
    ),
    (
        "--half-life",
        {"dest": "halving_days", "type": number_option(0.1, MOST_DAYS), "metavar": "DAYS"},
        "after so many days a minute counts half; default: all count the same",
    ),
    (
        "--floor",
        {"type": number_option(0, 1e18), "metavar": "RATE"},
        "no value is lower, in the key's unit; default: the key's least",
    ),
    (
        "--step-max",
        {"type": number_option(1, 1e18), "metavar": "TIMES"},
        f"how many times a value is raised or lowered at once; default {_RULES.step_max:g}",
    ),
    (
        "--tolerate",
        {"type": number_option(0, kind=int), "metavar": "MINUTES"},
        "throttled minutes that are no reason to raise; default: what --percentile leaves out",
    ),
    (
        "--skew-aware",
        {"action": "store_true"},
        "let the busiest broker hold the median broker's share, too, since leaders move",
    ),
)


def run(job: Job) -> None:
    """Write the advice.

    Raises:
        UsageError: An input lacks a table.
    """
    advise(job, partial(write_sizes, job))


def write_sizes(job: Job, evidence: Evidence) -> None:
    """Write the advice that follows from some hours, and count it into the report."""
    rules = SizingRules(**{name: getattr(job.options, name) for name in _OPTIONS})
    uses = uses_of(evidence, rules, job.options.halving_days)
    advice = advice_of(evidence, uses, rules)
    write_advice(job, RECOMMENDATION, advice, evidence.clusters)
    job.counts["rows_in"] = uses.num_rows
    actions = advice["action"].to_pylist()
    job.counts["advice"] = {action.value: actions.count(action) for action in Action}
    job.findings += actions.count(Action.RAISE) + actions.count(Action.LOWER)
    job.summary = list(summary_of(advice))


_LISTED: Final = 10


def summary_of(advice: pa.Table) -> Iterator[str]:
    """Yield the largest changes; without any, how many values the data do not suffice for."""
    changes = advice.filter(pc.field("value").is_valid())
    by = [("factor", "descending"), ("key", "ascending"), ("bucket_id", "ascending")]
    largest = changes.sort_by(by).slice(0, _LISTED).to_pylist()
    yield ""
    unknown = advice["action"].to_pylist().count(Action.INSUFFICIENT)
    if largest:
        yield "To raise or to lower:"
    elif unknown:
        values = f"{unknown} of {advice.num_rows} values"
        yield f"Nothing is to be raised or lowered yet: the data of {values} do not suffice."
    else:
        yield "Nothing is to be raised or lowered."
    yield from columns(
        ("advice", "entity", "key", "now", "then", "why"),
        [
            (
                row["action"],
                show_entity(json.loads(row["body"])["alterations"][0]["entity"]),
                key_name(row["key"]),
                value_in_words(row["key"], row["limit"]),
                value_in_words(row["key"], row["value"]),
                row["reason"],
            )
            for row in largest
        ],
    )
