"""Probes, metrics, version: for operators, without a credential."""

import asyncio
from http import HTTPStatus
from importlib.metadata import version

from fastapi import APIRouter, Request, Response

from app.http.declared import public
from app.http.json_text import JsonResponse
from app.http.openapi import LIVEZ, METRICS, READYZ, VERSION
from app.http.plain_route import PlainRoute
from app.http.query import read_query
from app.http.route_parameters import NO_PARAMETERS, READYZ_PARAMETERS
from app.http.services import services_of

router = APIRouter(tags=["operation"], route_class=PlainRoute)


@router.get("/livez", **LIVEZ)
@public
async def live(request: Request) -> Response:
    """Answer as long as the process can; looks at no dependency."""
    read_query(request.scope["query_string"], NO_PARAMETERS)
    return JsonResponse({"status": "ok"})


@router.get("/readyz", **READYZ)
@public
async def ready(request: Request) -> Response:
    """Tell whether reads can be served; with ``for=write`` whether alterations can."""
    values = read_query(request.scope["query_string"], READYZ_PARAMETERS)
    problems = await services_of(request).readiness.problems(for_write=values["for"] == "write")
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    word = "unavailable" if problems else "ok"
    return JsonResponse({"status": word, "problems": problems}, status)


@router.get("/metrics", **METRICS)
@public
async def show_metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    read_query(request.scope["query_string"], NO_PARAMETERS)
    body, content_type = await asyncio.to_thread(services_of(request).metrics.exposition)
    return Response(body, media_type=content_type)


@router.get("/version", **VERSION)
@public
async def show_version(request: Request) -> Response:
    """Tell which version is running."""
    read_query(request.scope["query_string"], NO_PARAMETERS)
    return JsonResponse({"name": "kafka-quota-service", "version": version("kafka-quota-service")})
