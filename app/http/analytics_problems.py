"""What can be wrong with what is asked of the pipeline's results, in words for people."""

from collections.abc import Mapping
from typing import Final

from app.http.problem_text import ProblemText

ANALYTICS_PROBLEMS: Final[Mapping[str, ProblemText]] = {
    "no-run": ProblemText(
        "No run of the pipeline yet",
        "These results come from the pipeline, and none of its runs has published them yet.",
        "Queue a run with POST /analytics/runs, or ask those who run the service when the first "
        "one is due.",
        "Start `quota-pipeline worker`, or run `quota-pipeline run --pg` from time to time.",
    ),
    "too-many-runs": ProblemText(
        "Too many runs are queued",
        "The queue of runs is bounded, for each principal and in all. Nothing was queued.",
        "Wait until some of the queued runs have ended, or cancel some of yours with "
        "POST /analytics/runs/{run_id}/cancel; GET /analytics/runs lists them.",
        "Start `quota-pipeline worker`, or another; a super user may cancel any run.",
    ),
    "run-of-another-caller": ProblemText(
        "The run is another caller's",
        "A run that was queued over HTTP is cancelled by the principal who queued it, or by a "
        "super user.",
        "Ask the principal that requested_by names.",
        "A super user (QUOTAS_SUPER_USERS) may cancel any run.",
    ),
}
