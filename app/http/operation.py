"""Probes, metrics, version: for operators, without a credential."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import Depends, Request, Response
from pydantic import Field

from app.http.guards import PUBLIC, served_by, services_of
from app.http.models import JsonResponse, ResponseModel
from app.http.query_params import QueryParameters, StrictQuery
from app.http.responses import answer_of, answers, problems, text_answer
from app.http.route import feature_router
from app.service.runtime.readiness import SOON_S

router = feature_router("operation")


class ReadinessParameters(QueryParameters):
    """The query of ``GET /readyz``."""

    purpose: Annotated[Literal["write"] | None, Field(alias="for")] = None
    """`write` asks whether alterations can be taken; without it, whether reads can."""
    cluster: str | None = None
    """The name of the cluster that is asked about; without it, the service as a whole."""


class Liveness(ResponseModel):
    """The process answers."""

    status: Literal["ok"]


class ClusterReadiness(ResponseModel):
    """Whether requests to one cluster can be served."""

    status: Literal["ok", "unavailable"]
    problems: dict[str, str]
    """What is wrong with it, by dependency."""


class Readiness(ResponseModel):
    """Whether requests can be served: those to one cluster at least."""

    status: Literal["ok", "unavailable"]
    problems: dict[str, str]
    """What is wrong, by dependency: with what all clusters need; where none is ready, or one was
    asked about, with that one or the default cluster, too."""
    clusters: dict[str, ClusterReadiness]
    """By name: all, or the one that was asked about."""


class Version(ResponseModel):
    """What is running."""

    name: Literal["kafka-quota-service"]
    version: str


@router.get(
    "/livez",
    summary="Does it live?",
    dependencies=PUBLIC,
    responses=answers(Liveness, "It does.", "live"),
)
async def live() -> Response:
    """Answer as long as the process can; looks at no dependency."""
    return JsonResponse({"status": "ok"})


@router.get(
    "/readyz",
    summary="Is it ready?",
    dependencies=PUBLIC,
    responses={
        200: answer_of(Readiness, "It is.", "ready"),
        503: answer_of(Readiness, "It is not; `problems` say why.", "not-ready"),
        **problems("NoSuchCluster"),
    },
)
async def ready(
    request: Request,
    query: Annotated[ReadinessParameters, Depends(StrictQuery(ReadinessParameters))],
) -> Response:
    """Report whether reads can be served; with ``for=write`` whether alterations can.

    The service is ready while one cluster is.
    """
    served, for_write = served_by(request), query.purpose == "write"
    asked = served.services.values() if query.cluster is None else [served.named(query.cluster)]
    within_s = SOON_S if len(asked) > 1 else None
    shared, *each = await asyncio.gather(
        served.readiness.problems(for_write=for_write),
        *(each.readiness.problems(for_write=for_write, within_s=within_s) for each in asked),
    )
    of_clusters = {services.name: found for services, found in zip(asked, each, strict=True)}
    faults = dict(shared)
    if all(each):
        faults |= of_clusters[query.cluster or served.default]
    status = HTTPStatus.SERVICE_UNAVAILABLE if faults else HTTPStatus.OK
    clusters = {name: _state(found) for name, found in of_clusters.items()}
    return JsonResponse({**_state(faults), "clusters": clusters}, status)


def _state(problems: Mapping[str, str]) -> dict[str, Any]:
    return {"status": "unavailable" if problems else "ok", "problems": problems}


@router.get(
    "/metrics",
    summary="Show the metrics",
    dependencies=PUBLIC,
    response_class=Response,
    responses={200: text_answer("Prometheus' text format.", "text/plain", "metrics")},
)
async def show_metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    anew, metrics = services_of(request).limits.may_write_metrics(), served_by(request).metrics
    body, content_type = await asyncio.to_thread(metrics.exposition, anew=anew)
    return Response(body, media_type=content_type)


@router.get(
    "/version",
    summary="Show the version",
    dependencies=PUBLIC,
    responses=answers(Version, "Name and version.", "version"),
)
async def show_version() -> Response:
    """Report which version is running."""
    return JsonResponse({"name": "kafka-quota-service", "version": version("kafka-quota-service")})
