"""Examples of requests, and of answers: those are made by what makes the real ones."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson
import yaml
from pydantic import BaseModel

from app.domain.alterations import AlterationResult, Outcome
from app.domain.plans import DesiredQuota, Holding, PlanRequest, base_of, make_plan
from app.domain.resolution_index import QuotaIndex
from app.http import example_values as sample
from app.http.alterations.routes import alteration_document, record_document
from app.http.analytics.models import PipelineRun
from app.http.analytics.routes import page_model
from app.http.audit import AuditPage
from app.http.encoding import model_bytes, quota_json, rfc3339
from app.http.models import API_VERSION
from app.http.pages import service_json
from app.http.plans.routes import plan_document
from app.http.quotas.formats import Format, QuotaListingResponse, encode
from app.http.quotas.routes import capabilities
from app.http.resolve.rendering import answer_head, resolution_document, resolutions_bytes
from app.http.users import scram_users
from app.service.alterations.command import AlterationReport
from app.service.plans import PLAN_TTL, planned
from app.service.ports.audit_log import AlterationRecord, AuditEntity, AuditRequest, AuditRow
from app.service.ports.brokers import ScramCredential, ScramUsers
from app.service.ports.plans import StoredPlan
from app.service.queries.analytics import COLUMNS, AnalyticsPage, PublishedRun, Result, Row
from app.service.queries.resolve import Identity, ResolutionBasis, ResolveQuery, resolved

Example = dict[str, Any]


def _example(summary: str, value: Any) -> Example:
    if isinstance(value, BaseModel):
        value = orjson.loads(model_bytes(value))
    return {"summary": summary, "value": value}


def _listing(media_type: Format) -> str:
    entries = sorted(sample.QUOTAS.items(), key=lambda entry: entry[0].sort_key())
    answer = QuotaListingResponse(sample.CLUSTER_ID, sample.AT, entries)
    return b"".join(encode(media_type, answer)).decode()


def _report(*results: AlterationResult, readable: bool | None) -> BaseModel:
    validate_only = results[0].outcome is Outcome.VALIDATED
    return alteration_document(
        AlterationReport(sample.ALTERATION_ID, sample.CLUSTER_ID, validate_only, results, readable)
    )


_SENT: Final = (sample.AT, "sent", "handed to broker 1")
_APPLIED: Final = (sample.LATER, "outcome", "applied")
_LOST: Final = (sample.LATER, "outcome", "unknown")
_FOUND: Final = (sample.MUCH_LATER, "recovery", "observed_other")


def _record(*events: tuple[datetime, str, str]) -> BaseModel:
    request = AuditRequest(
        alteration_id=sample.ALTERATION_ID,
        cluster_id=sample.CLUSTER_ID,
        caller=sample.CALLER,
        action="alter",
        request_id=sample.REQUEST_ID,
        entities=(AuditEntity(0, sample.ALTERATION, sample.BEFORE),),
        reason=sample.REASON,
    )
    history = ((sample.AT, "intent", "committed before anything was sent"), *events)
    results = {0: sample.OBSERVED_OTHER if _FOUND in events else sample.APPLIED}
    return record_document(
        AlterationRecord(request, sample.AT, results, concluded=True, history=history)
    )


def _resolution(*, explain: bool, **names: str) -> dict[str, Any]:
    resolution = resolved(QuotaIndex.of(sample.QUOTAS), Identity(**names), explain=explain)
    return {
        **answer_head(sample.CLUSTER_ID, sample.AT),
        **resolution_document(resolution, None, explain=explain),
    }


def _what_if() -> dict[str, Any]:
    query, index = ResolveQuery((Identity("alice", "etl"),)), QuotaIndex.of(sample.QUOTAS)
    changed = index.with_alterations([sample.ALTERATION])
    basis = ResolutionBasis(query, sample.CLUSTER_ID, sample.AT, index, changed, None, {})
    return dict(orjson.loads(resolutions_bytes(basis)))


def _audit_page() -> AuditPage:
    row = AuditRow(
        cluster_id=sample.CLUSTER_ID,
        alteration_id=sample.ALTERATION_ID,
        at=sample.AT,
        principal=sample.CALLER.principal,
        authentication=sample.CALLER.authentication,
        client_address=sample.CALLER.host,
        action="alter",
        entity=sample.USER_ANY_CLIENT,
        ops=({"key": sample.PRODUCER, "value": 1048576}, {"key": sample.CONSUMER, "remove": True}),
        before=sample.BEFORE,
        after=sample.AFTER,
        outcome=Outcome.APPLIED.value,
        reason=sample.REASON,
        request_id=sample.REQUEST_ID,
        error=None,
    )
    return AuditPage.model_validate({"rows": [row], "next_page_token": sample.PAGE_TOKEN})


_BROKERS: Final = {"describe_api_version": 1, "alter_api_version": 1, "metadata_version": 29}

_LISTING: Final = _listing(Format.JSON)

ANSWER_EXAMPLES: Final[Mapping[str, Example]] = {
    "quotas": _example("Three entities", orjson.loads(_LISTING)),
    "quota": _example(
        "One entity",
        {
            "cluster_id": sample.CLUSTER_ID,
            "as_of": rfc3339(sample.AT),
            **quota_json(sample.USER, sample.QUOTAS[sample.USER]),
        },
    ),
    "quotas-ndjson": _example("The same, one a line", _listing(Format.NDJSON)),
    "quotas-csv": _example("The same as a table", _listing(Format.CSV)),
    "quotas-yaml": _example("The same as a document", yaml.safe_load(_listing(Format.YAML))),
    "capabilities": _example("Keys, bounds and limits", capabilities(_BROKERS)),
    "alteration-applied": _example("Applied", _report(sample.APPLIED, readable=True)),
    "alteration-validated": _example("Only checked", _report(sample.VALIDATED, readable=None)),
    "alteration-partial": _example(
        "One refused, the other applied", _report(sample.APPLIED, sample.REFUSED, readable=True)
    ),
    "alteration-reverted": _example("Taken back", _report(sample.REVERTED, readable=True)),
    "alteration-record": _example("What the log knows", _record(_SENT, _APPLIED)),
    "alteration-recovered": _example(
        "What was found after an answer was lost", _record(_SENT, _LOST, _FOUND)
    ),
    "resolution-client": _example(
        "A user with a client-id", _resolution(explain=False, user="alice", client_id="etl")
    ),
    "resolution-address": _example(
        "An address, every level explained", _resolution(explain=True, ip="10.0.0.1")
    ),
    "resolutions": _example("What-if", _what_if()),
    "audit": _example("One row, more follow", _audit_page()),
    "live": _example("It runs", {"status": "ok"}),
    "ready": _example("Ready", {"status": "ok", "problems": {}}),
    "not-ready": _example(
        "The audit log cannot be written",
        {"status": "unavailable", "problems": {"audit_log": "no answer within 2 s"}},
    ),
    "version": _example("A version", {"name": "kafka-quota-service", "version": "0.1.0"}),
    "metrics": _example(
        "A gauge",
        "# HELP http_server_active_requests Requests in flight.\n"
        "# TYPE http_server_active_requests gauge\nhttp_server_active_requests 1.0\n",
    ),
    "service": _example("A service", service_json("0.1.0", sample.CLUSTER_ID)),
    "start-page": _example("The page", '<!doctype html>\n<html lang="en">…</html>\n'),
    "problem-page": _example("A page", '<!doctype html>\n<html lang="en">…</html>\n'),
}


_ALICE_ANY_CLIENT: Final = {"user": "alice", "client-id": None}


def _set(entity: Mapping[str, str | None], key: str, value: float) -> dict[str, Any]:
    return {"entity": dict(entity), "ops": [{"key": key, "value": value}]}


ALTERATION_REQUESTS: Final[Mapping[str, Example]] = {
    "set-and-remove": _example(
        "Raise one quota, remove another",
        {
            "wait": "readable",
            "reason": sample.REASON,
            "alterations": [
                {
                    "entity": _ALICE_ANY_CLIENT,
                    "ops": [
                        {"key": "producer_byte_rate", "value": 1048576},
                        {"key": "consumer_byte_rate", "remove": True},
                    ],
                }
            ],
        },
    ),
    "check-only": _example(
        "Let the broker check, if the value is as expected; change nothing",
        {
            "validate_only": True,
            "alterations": [
                {
                    **_set({"user": None}, sample.PRODUCER, 20971520),
                    "expected": {sample.PRODUCER: 10485760},
                }
            ],
        },
    ),
    "several-kinds": _example(
        "A client-id, an address and the default user, each on its own",
        {
            "all_or_nothing": False,
            "wait": "all_brokers",
            "wait_ms": 10000,
            "alterations": [
                _set({"client-id": "etl"}, "controller_mutation_rate", 5),
                _set({"ip": "10.0.0.1"}, "connection_creation_rate", 100),
                _set({"user": None}, "consumer_byte_rate", 9223372036854775807),
            ],
        },
    ),
}

REPLACE_REQUESTS: Final[Mapping[str, Example]] = {
    "replace": _example(
        "These are all its values", {"reason": sample.REASON, "values": {sample.PRODUCER: 2097152}}
    ),
    "check-replacing": _example(
        "Only check", {"validate_only": True, "values": {sample.PRODUCER: 2097152}}
    ),
}

REVERT_REQUESTS: Final[Mapping[str, Example]] = {
    "take-back": _example("Take the alteration back", {"reason": "INC-4711 the backfill is done"}),
    "check-taking-back": _example(
        "Only check whether it could be taken back", {"validate_only": True}
    ),
}

RESOLVE_REQUESTS: Final[Mapping[str, Example]] = {
    "present": _example(
        "What applies to two clients and an address",
        {"identities": [{"user": "alice", "client-id": "etl"}, {"user": "bob"}, {"ip": "::1"}]},
    ),
    "what-if": _example(
        "What would apply after an alteration",
        {
            "identities": [{"user": "alice", "client-id": "etl"}],
            "alterations": [_set(_ALICE_ANY_CLIENT, "producer_byte_rate", 1048576)],
            "max_age_ms": 0,
        },
    ),
}


_OWNER: Final = "team-a"
_PLAN_ID: Final = sample.ALTERATION_ID


def _plan() -> dict[str, Any]:
    wanted = PlanRequest(
        (
            DesiredQuota(sample.USER, {sample.PRODUCER: Decimal(2097152)}),
            DesiredQuota(sample.DEFAULT_USER, {sample.PRODUCER: Decimal(2000)}),
        ),
        _OWNER,
        prune=True,
    )
    holdings = {
        sample.USER: {sample.CONSUMER: Holding(_OWNER, 2.0**63)},
        sample.DEFAULT_USER: {sample.PRODUCER: Holding("platform", 1000.0)},
        sample.ADDRESS: {sample.CONNECTIONS: Holding(_OWNER, 50.0)},
    }
    plan = planned(wanted, sample.QUOTAS, holdings)
    document = plan_document(
        StoredPlan(
            plan_id=_PLAN_ID,
            cluster_id=sample.CLUSTER_ID,
            author=sample.CALLER.principal,
            owner=_OWNER,
            prune=True,
            adopt=False,
            scope=(),
            created_at=sample.AT,
            expires_at=sample.AT + PLAN_TTL,
            base=base_of(sample.CLUSTER_ID, plan),
            changes=plan.changes,
            conflicts=plan.conflicts,
            unpruned=plan.unpruned,
            rests_on=plan.rests_on,
        )
    )
    return dict(orjson.loads(model_bytes(document)))


def _nothing() -> dict[str, Any]:
    plan = make_plan(PlanRequest((), _OWNER), {}, {})
    empty = {**_plan(), "prune": False, "base": base_of(sample.CLUSTER_ID, plan)}
    return {**empty, "changes": [], "conflicts": [], "kept": []}


PLAN_REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "desired": _example(
        "What should hold, without removing anything",
        {
            "owner": _OWNER,
            "document": {
                "apiVersion": API_VERSION,
                "quotas": [{"entity": {"user": "alice"}, "values": {sample.PRODUCER: 2097152}}],
            },
        },
    ),
    "desired-within-a-scope": _example(
        "All that should hold for some users, and nothing else of ours",
        {
            "owner": _OWNER,
            "prune": True,
            "scope": ["user^=team-a-"],
            "document": {
                "apiVersion": API_VERSION,
                "quotas": [
                    {"entity": {"user": "team-a-etl"}, "values": {sample.PRODUCER: 1048576}}
                ],
            },
        },
    ),
}

APPLY_REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "apply": _example("Apply it", {"reason": sample.REASON}),
    "take-over": _example("Take over what others hold", {"force": True, "reason": sample.REASON}),
}

PLAN_EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "plan": _example("One change of one's own, one of another's, one key not pruned", _plan()),
    "plan-of-nothing": _example("Everything is as desired", _nothing()),
}


_DAY: Final = sample.AT.replace(hour=0, minute=0, second=0, microsecond=0)
_END: Final = _DAY + timedelta(days=1)
_EXAMPLE_BUCKET: Final = -1541027420173551103

_BUCKET: Final[Row] = {
    "cluster_id": sample.CLUSTER_ID,
    "bucket_id": _EXAMPLE_BUCKET,
    "key": sample.PRODUCER,
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
_HOUR: Final[Row] = {
    **_SPENT,
    "dt": _DAY.date(),
    "hour": _DAY + timedelta(hours=8),
    "rate_avg": 1001000.0,
    "rate_max": 1148576.0,
    "throttle_ms_max": 812.5,
    "minutes": 58,
}
_QUEUED: Final[Row] = {
    **dict.fromkeys(COLUMNS[Result.RUNS]),
    "run_id": sample.ALTERATION_ID,
    "job": "run",
    "options": {"input": ["metrics"], "format": "prom-json", "quotas": "quotas"},
    "state": "queued",
    "requested_by": sample.CALLER.principal,
    "requested_at": sample.AT,
    "cancel_requested": False,
    "published": [],
}
_SUCCEEDED: Final[Row] = {
    **_QUEUED,
    "cluster_id": sample.CLUSTER_ID,
    "state": "succeeded",
    "started_at": sample.AT,
    "ended_at": sample.LATER,
    "data_through": _END,
    "coverage": 0.98,
    "rows_in": 51840,
    "rows_out": 17330,
    "published": ["bucket_hour", "dim_bucket", "throttle_incident", "utilization_daily"],
}
_CANCELLED: Final[Row] = {
    **_QUEUED,
    "state": "cancelled",
    "cancel_requested": True,
    "ended_at": sample.LATER,
}


def _page(table: Result, row: Row) -> BaseModel:
    run = PublishedRun(sample.ALTERATION_ID, _END, 0.98)
    return page_model(table, AnalyticsPage(run, [row], [_BUCKET], None), sample.PAGE_TOKEN)


ANALYTICS_EXAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "utilization": _example("A bucket near its limit", _page(Result.UTILIZATION, _UTILIZATION)),
    "incidents": _example("Four minutes of throttling", _page(Result.INCIDENTS, _INCIDENT)),
    "bucket-hours": _example("One hour", _page(Result.HOURS, _HOUR)),
    "runs": _example("One run", _page(Result.RUNS, _SUCCEEDED)),
    "run-queued": _example("It waits for a worker", PipelineRun.model_validate(_QUEUED)),
    "run-succeeded": _example("It has published", PipelineRun.model_validate(_SUCCEEDED)),
    "run-cancelled": _example("It never began", PipelineRun.model_validate(_CANCELLED)),
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


_USERS: Final = {
    "alice": (ScramCredential("SCRAM-SHA-256", 8192), ScramCredential("SCRAM-SHA-512", 4096)),
    "bob": (ScramCredential("SCRAM-SHA-512", 4096),),
}

USER_EXAMPLES: Final[Mapping[str, Any]] = {
    "me": _example(
        "A caller who may read, and change some quotas of a team",
        {
            "cluster_id": sample.CLUSTER_ID,
            "principal": sample.CALLER.principal,
            "authentication": sample.CALLER.authentication,
            "client_address": sample.CALLER.host,
            "permissions": {"describe": True, "alter": True, "audit": False, "scram": False},
            "policy": [
                {
                    "name": "team-a",
                    "entities": [["user^=team-a-"], ["user^=team-a-", "client-id:any"]],
                    "keys": {sample.PRODUCER: {"min": None, "max": 10485760, "remove": True}},
                    "defaults": False,
                }
            ],
        },
    ),
    "scram-credentials": _example(
        "Two users have credentials.", scram_users(ScramUsers(_USERS, sample.AT, sample.CLUSTER_ID))
    ),
}


EXAMPLES: Final[Mapping[str, Example]] = {
    **ALTERATION_REQUESTS,
    **REPLACE_REQUESTS,
    **REVERT_REQUESTS,
    **RESOLVE_REQUESTS,
    **PLAN_REQUESTS,
    **APPLY_REQUESTS,
    **PLAN_EXAMPLES,
    **USER_EXAMPLES,
    **RUN_REQUESTS,
    **ANALYTICS_EXAMPLES,
    **ANSWER_EXAMPLES,
}
"""By the names that routes give."""
