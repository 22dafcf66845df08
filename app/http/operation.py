"""Probes, metrics, version: for operators, without a credential."""

import asyncio
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import Depends, Request, Response
from pydantic import Field

from app.http.guards import PUBLIC, services_of
from app.http.models import JsonResponse, ResponseModel
from app.http.query_params import QueryParameters, StrictQuery
from app.http.responses import answer_of, answers, text_answer
from app.http.route import feature_router

router = feature_router("operation")


class ReadinessParameters(QueryParameters):
    """The query of ``GET /readyz``."""

    purpose: Annotated[Literal["write"] | None, Field(alias="for")] = None
    """`write` asks whether alterations can be taken; without it, whether reads can."""


class Liveness(ResponseModel):
    """The process answers."""

    status: Literal["ok"]


class Readiness(ResponseModel):
    """Whether requests can be served."""

    status: Literal["ok", "unavailable"]
    problems: dict[str, str]
    """What is wrong, by dependency."""


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
    },
)
async def ready(
    request: Request,
    query: Annotated[ReadinessParameters, Depends(StrictQuery(ReadinessParameters))],
) -> Response:
    """Report whether reads can be served; with ``for=write`` whether alterations can."""
    for_write = query.purpose == "write"
    faults = await services_of(request).readiness.problems(for_write=for_write)
    status = HTTPStatus.SERVICE_UNAVAILABLE if faults else HTTPStatus.OK
    word = "unavailable" if faults else "ok"
    return JsonResponse({"status": word, "problems": faults}, status)


@router.get(
    "/metrics",
    summary="Show the metrics",
    dependencies=PUBLIC,
    response_class=Response,
    responses={200: text_answer("Prometheus' text format.", "text/plain", "metrics")},
)
async def show_metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    services = services_of(request)
    anew = services.limits.may_write_metrics()
    body, content_type = await asyncio.to_thread(services.metrics.exposition, anew=anew)
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
