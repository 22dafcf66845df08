"""The OpenAPI description as data: what each route takes and answers, with schemas and examples.

``DESCRIBE`` and its like are keyword arguments of the route decorators; ``complete`` adds the rest
to the document that FastAPI makes of the routes.
"""

from typing import Any, Final

from app.http.openapi.document import complete
from app.http.openapi.operations import OPERATIONS

__all__ = [
    "ALTER",
    "ALTERATION",
    "APPLY",
    "AUDIT",
    "BUCKET",
    "CANCEL_RUN",
    "CAPABILITIES",
    "DESCRIBE",
    "INCIDENTS",
    "LIVEZ",
    "METRICS",
    "PLAN",
    "PROBLEM_PAGE",
    "QUEUE_RUN",
    "READYZ",
    "RESOLVE",
    "RESOLVE_MANY",
    "REVERT",
    "RUN",
    "RUNS",
    "SCRAM_CREDENTIALS",
    "SHOW_PLAN",
    "UTILIZATION",
    "VERSION",
    "complete",
]


def _arguments(operation: str) -> dict[str, Any]:
    described = OPERATIONS[operation]
    return {"operation_id": described["operationId"], "summary": described["summary"]}


DESCRIBE: Final = _arguments("GET /quotas")
CAPABILITIES: Final = _arguments("GET /quotas/capabilities")
ALTER: Final = _arguments("POST /quotas/alterations")
ALTERATION: Final = _arguments("GET /quotas/alterations/{alteration_id}")
REVERT: Final = _arguments("POST /quotas/alterations/{alteration_id}/revert")
PLAN: Final = _arguments("POST /quotas/plans")
SHOW_PLAN: Final = _arguments("GET /quotas/plans/{plan_id}")
APPLY: Final = _arguments("POST /quotas/plans/{plan_id}/apply")
RESOLVE: Final = _arguments("GET /quotas/resolve")
RESOLVE_MANY: Final = _arguments("POST /quotas/resolve")
SCRAM_CREDENTIALS: Final = _arguments("GET /users/scram-credentials")
AUDIT: Final = _arguments("GET /audit")
UTILIZATION: Final = _arguments("GET /analytics/utilization")
INCIDENTS: Final = _arguments("GET /analytics/incidents")
BUCKET: Final = _arguments("GET /analytics/buckets/{bucket_id}")
RUNS: Final = _arguments("GET /analytics/runs")
QUEUE_RUN: Final = _arguments("POST /analytics/runs")
RUN: Final = _arguments("GET /analytics/runs/{run_id}")
CANCEL_RUN: Final = _arguments("POST /analytics/runs/{run_id}/cancel")
LIVEZ: Final = _arguments("GET /livez")
READYZ: Final = _arguments("GET /readyz")
METRICS: Final = _arguments("GET /metrics")
VERSION: Final = _arguments("GET /version")
PROBLEM_PAGE: Final = _arguments("GET /problems/{code}")
