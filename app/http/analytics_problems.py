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
}
