"""Every problem that this service answers."""

from collections.abc import Mapping
from typing import Final

from app.http.alteration_problems import ALTERATION_PROBLEMS
from app.http.analytics_problems import ANALYTICS_PROBLEMS
from app.http.plan_problems import PLAN_PROBLEMS
from app.http.problem_text import ProblemText
from app.http.request_problems import REQUEST_PROBLEMS
from app.http.service_problems import SERVICE_PROBLEMS

PROBLEMS: Final[Mapping[str, ProblemText]] = {
    **REQUEST_PROBLEMS,
    **ALTERATION_PROBLEMS,
    **SERVICE_PROBLEMS,
    **ANALYTICS_PROBLEMS,
    **PLAN_PROBLEMS,
}
"""One row for each code."""
