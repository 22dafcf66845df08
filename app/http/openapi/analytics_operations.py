"""The operations of ``/analytics/…``, with their examples."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from app.http.analytics_documents import page_json, row_json
from app.http.analytics_parameters import (
    BUCKET_PARAMETERS,
    INCIDENTS_PARAMETERS,
    RUNS_PARAMETERS,
    UTILIZATION_PARAMETERS,
)
from app.http.openapi import example_values as given
from app.http.openapi.analytics_schemas import BUCKET_ID, RUN_ID
from app.http.openapi.parameters import query_parameters
from app.http.openapi.responses import JSON, READING, WITH_BODY, answer, body, json_answer, problems
from app.http.openapi.security import CALLER
from app.http.openapi.shapes import ref, text
from app.service.reading.analytics import AnalyticsPage, PublishedRun, Result, Row
from app.service.reading.analytics_columns import COLUMNS

_DAY: Final = given.AT.replace(hour=0, minute=0, second=0, microsecond=0)
_END: Final = _DAY + timedelta(days=1)
_BUCKET_ID: Final = -1541027420173551103

_BUCKET: Final[Row] = {
    "cluster_id": given.CLUSTER_ID,
    "bucket_id": _BUCKET_ID,
    "key": given.PRODUCER,
    "level": 3,
    "bucket_user": "alice",
    "bucket_client": "",
    "quota_user": "alice",
    "quota_user_default": False,
    "quota_client_id": "",
    "quota_client_default": False,
    "first_seen": _DAY,
    "last_seen": _END - timedelta(minutes=1),
}
_SPENT: Final[Row] = {**_BUCKET, "limit": 1048576.0, "broker_id": 1, "coverage": 0.98}

_UTILIZATION: Final[Row] = {
    **_SPENT,
    "dt": _DAY.date(),
    "broker_id": None,
    "minutes_present": 4234,
    "minutes_expected": 4320,
    "bytes": 94371840000,
    "p50": 401000.5,
    "p95": 880000.0,
    "p99": 1001000.0,
    "peak": 1148576.0,
    "minutes_over_80": 312,
    "minutes_over_100": 4,
    "throttled_minutes": 4,
    "throttle_ms_max": 812.5,
    "util_p99": 0.9546279907226562,
    "headroom": 47576.0,
}
_INCIDENT: Final[Row] = {
    **_SPENT,
    "incident_id": "5e0f43cc21d6ab17",
    "start": _DAY + timedelta(hours=8),
    "end": _DAY + timedelta(hours=8, minutes=4),
    "minutes": 4,
    "peak_ratio": 1.095367431640625,
    "throttle_ms_p95": 780.25,
    "est_deferred_bytes": 6000000,
    "brokers_affected": 1,
    "first_contributors": None,
    "status": "closed",
}
_MINUTE: Final[Row] = {
    **_SPENT,
    "dt": _DAY.date(),
    "ts": _DAY + timedelta(hours=8),
    "rate_avg": 1001000.0,
    "rate_max": 1148576.0,
    "throttle_ms_avg": 310.5,
    "throttle_ms_max": 812.5,
    "bytes_est": 60060000,
    "contributors": 1,
}
_QUEUED: Final[Row] = {
    **dict.fromkeys(COLUMNS[Result.RUNS]),
    "run_id": given.ALTERATION_ID,
    "job": "run",
    "options": {"input": ["metrics"], "format": "prom-json", "quotas": "quotas"},
    "state": "queued",
    "requested_by": given.CALLER.principal,
    "requested_at": given.AT,
    "cancel_requested": False,
    "published": [],
}
_SUCCEEDED: Final[Row] = {
    **_QUEUED,
    "cluster_id": given.CLUSTER_ID,
    "state": "succeeded",
    "started_at": given.AT,
    "ended_at": given.LATER,
    "data_through": _END,
    "coverage": 0.98,
    "rows_in": 51840,
    "rows_out": 17330,
    "published": ["bucket_minute", "dim_bucket", "throttle_incident", "utilization_daily"],
}
_CANCELLED: Final[Row] = {
    **_QUEUED,
    "state": "cancelled",
    "cancel_requested": True,
    "ended_at": given.LATER,
}


def _listing(table: Result, row: Row) -> dict[str, Any]:
    run = PublishedRun(given.ALTERATION_ID, _END, 0.98)
    document = page_json(AnalyticsPage(run, [row], [], None), COLUMNS[table], given.PAGE_TOKEN)
    return document if table is Result.RUNS else {**document, "buckets": [row_json(_BUCKET)]}


def _example(summary: str, value: Any) -> dict[str, Any]:
    return {"summary": summary, "value": value}


ANALYTICS_EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "utilization": _example("A bucket near its limit", _listing(Result.UTILIZATION, _UTILIZATION)),
    "incidents": _example("Four minutes of throttling", _listing(Result.INCIDENTS, _INCIDENT)),
    "bucket-minutes": _example("One minute", _listing(Result.MINUTES, _MINUTE)),
    "runs": _example("One run", _listing(Result.RUNS, _SUCCEEDED)),
    "run-queued": _example("It waits for a worker", row_json(_QUEUED)),
    "run-succeeded": _example("It has published", row_json(_SUCCEEDED)),
    "run-cancelled": _example("It never began", row_json(_CANCELLED)),
}

RUN_REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "whole-chain": _example(
        "From metrics to incidents",
        {
            "job": "run",
            "options": {"input": ["metrics"], "format": "prom-json", "quotas": "quotas"},
        },
    ),
    "one-day": _example(
        "One day anew",
        {"job": "utilization", "options": {"from": "2026-11-20", "to": "2026-11-21"}},
    ),
}

_REQUEST_ID: Final = ref("X-Request-Id", "parameters")
_LISTED: Final = (*READING, "UnreadableOrStale", "NoRun")

_BUCKET_PARAMETER: Final = {
    "name": "bucket_id",
    "in": "path",
    "required": True,
    "description": "The `bucket_id` of a row.",
    "schema": text(pattern=BUCKET_ID),
}
_RUN_PARAMETER: Final = {
    "name": "run_id",
    "in": "path",
    "required": True,
    "description": "The `run_id` of an answer.",
    "schema": text(pattern=RUN_ID),
}
_RECORD: Final = {
    "record": {
        "operationId": "showRun",
        "parameters": {"run_id": "$response.body#/run_id"},
        "description": "The record of this run.",
    }
}

ANALYTICS_OPERATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "GET /analytics/utilization": {
        "operationId": "showUtilization",
        "summary": "Show who is near a limit",
        **CALLER,
        "parameters": [*query_parameters(UTILIZATION_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer("One page.", "UtilizationPage", "utilization"),
            **problems(*_LISTED, "BadFilter"),
        },
    },
    "GET /analytics/incidents": {
        "operationId": "showIncidents",
        "summary": "Show who was throttled",
        **CALLER,
        "parameters": [*query_parameters(INCIDENTS_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer("One page, newest first.", "IncidentPage", "incidents"),
            **problems(*_LISTED, "BadFilter"),
        },
    },
    "GET /analytics/buckets/{bucket_id}": {
        "operationId": "showBucket",
        "summary": "Show the minutes of a bucket",
        **CALLER,
        "parameters": [_BUCKET_PARAMETER, *query_parameters(BUCKET_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer("One page, oldest first.", "BucketPage", "bucket-minutes"),
            **problems(*_LISTED, "NoSuchBucket", "BadParameter"),
        },
    },
    "GET /analytics/runs": {
        "operationId": "showRuns",
        "summary": "Show the runs of the pipeline",
        **CALLER,
        "parameters": [*query_parameters(RUNS_PARAMETERS), _REQUEST_ID],
        "responses": {
            "200": json_answer("One page, newest first.", "RunPage", "runs"),
            **problems(*_LISTED, "BadParameter"),
        },
    },
    "POST /analytics/runs": {
        "operationId": "queueRun",
        "summary": "Queue a run of the pipeline",
        **CALLER,
        "parameters": [_REQUEST_ID],
        "requestBody": {"required": True, "content": {JSON: body("RunRequest", *RUN_REQUESTS)}},
        "responses": {
            "202": {
                **answer(
                    "Queued for the next worker that is free.",
                    {JSON: body("PipelineRun", "run-queued")},
                    "Run-Location",
                ),
                "links": _RECORD,
            },
            **problems(*READING, *WITH_BODY, "BadRun"),
        },
    },
    "GET /analytics/runs/{run_id}": {
        "operationId": "showRun",
        "summary": "Show one run",
        **CALLER,
        "parameters": [_RUN_PARAMETER, _REQUEST_ID],
        "responses": {
            "200": json_answer("Its record.", "PipelineRun", "run-queued", "run-succeeded"),
            **problems(*READING, "NotFound"),
        },
    },
    "POST /analytics/runs/{run_id}/cancel": {
        "operationId": "cancelRun",
        "summary": "Cancel a run",
        **CALLER,
        "parameters": [_RUN_PARAMETER, _REQUEST_ID],
        "responses": {
            "200": json_answer(
                "Its record; a run that has ended stays as it is.", "PipelineRun", "run-cancelled"
            ),
            **problems(*READING, "NotFound"),
        },
    },
}
