"""What can be wrong with a plan, in words for people."""

from collections.abc import Mapping
from typing import Final

from app.http.problem_text import ProblemText

PLAN_PROBLEMS: Final[Mapping[str, ProblemText]] = {
    "plan-outdated": ProblemText(
        "The cluster has changed since the plan was made",
        "A plan is applied only while the values that it was made from, and the owners of the keys "
        "that it changes, are as they were. Something has changed, so nothing was applied; errors "
        "carry the values that hold.",
        "Make a new plan, look at it, and apply that one.",
    ),
    "plan-expired": ProblemText(
        "The plan has expired",
        "A plan can be applied for 24 hours. Nothing was applied.",
        "Make a new plan and apply that one.",
    ),
    "too-many-plans": ProblemText(
        "Too many plans can still be applied",
        "The plans of one principal that have not expired are bounded, in number and in size. "
        "Nothing was stored.",
        "Make fewer plans, or smaller ones, or wait: a plan expires after 24 hours.",
    ),
    "owner-conflict": ProblemText(
        "Another owner holds what the plan would change",
        "A key belongs to the owner that applied it last from a plan. This plan would change keys "
        "of others; each is in errors with its owner. Nothing was applied.",
        'Leave those keys out of the document, or apply with "force": true, which takes them over '
        "and is kept in the audit log.",
    ),
}
