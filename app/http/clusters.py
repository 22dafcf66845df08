"""``/clusters``: which clusters this service is for, their state, and what the caller may there."""

import asyncio
from contextlib import suppress
from typing import Final, NoReturn

from fastapi import Depends, Request, Response

from app.domain.errors import NotFoundError, NotSentError
from app.http.guards import (
    NO_SUCH_CLUSTER,
    AnyCallerOfService,
    Granted,
    Services,
    any_caller_of_service,
    permissions_of,
    served_by,
    services_of,
)
from app.http.models import JsonResponse, Permissions, ResponseModel
from app.http.responses import answers
from app.http.route import feature_router
from app.service.runtime.readiness import SOON_S

router = feature_router("operation")

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

_WITHIN_S: Final = 1.0
"""How long a cluster may take to report the rights of a caller, who asks about all of them."""


class Cluster(ResponseModel):
    """One cluster of this service."""

    name: str
    """As it stands in paths: `/clusters/{name}/quotas`."""
    cluster_id: str | None
    """Kafka's id of it; null until it has answered once."""
    ready: bool
    """Whether requests to it can be served."""
    reason: str | None
    """Why they cannot; null where they can."""
    permissions: Permissions | None
    """What the caller may do there; null until it has answered once, where it does not tell in a
    second, and where the caller would have to log in at its brokers."""


class Clusters(ResponseModel):
    """The clusters of this service."""

    default: str
    """The one that answers where a path names none."""
    clusters: list[Cluster]
    """In the order of the file."""


@router.get(
    "/clusters",
    summary="List the clusters",
    responses=answers(Clusters, "Every cluster of this service.", "clusters"),
)
async def list_clusters(request: Request, granted: AnyCallerOfService) -> Response:
    """List the clusters of this service, with their state and what the caller may do there."""
    served = served_by(request)
    listed = await asyncio.gather(
        *(_cluster(each, granted, services_of(request)) for each in served.services.values())
    )
    return JsonResponse(Clusters(default=served.default, clusters=listed))


async def _cluster(services: Services, granted: Granted, asked: Services) -> Cluster:
    problems, permissions = await asyncio.gather(
        services.readiness.problems(for_write=False, within_s=SOON_S),
        _permissions(services, granted, asked),
    )
    return Cluster(
        name=services.name,
        cluster_id=services.cluster_now(),
        ready=not problems,
        reason=" ".join(problems.values()) or None,
        permissions=permissions,
    )


async def _permissions(services: Services, granted: Granted, asked: Services) -> Permissions | None:
    actor = granted.actor
    if services.cluster_now() is None:
        return None
    if actor.is_logged_in and services is not asked:
        return None
    own = actor if actor.is_logged_in else services.own_account(actor.caller)
    with suppress(NotSentError, TimeoutError):
        async with asyncio.timeout(_WITHIN_S):
            return Permissions(**await permissions_of(own))
    return None


async def refuse_unknown(name: str) -> NoReturn:  # noqa: ARG001 - of the path
    """Refuse a path whose cluster is none: that of one is served as if it were not there."""
    raise NotFoundError(NO_SUCH_CLUSTER, code="no-such-cluster")


for method in _METHODS:
    router.add_api_route(
        "/clusters/{name:path}",
        refuse_unknown,
        methods=[method],
        include_in_schema=False,
        response_model=None,
        dependencies=[Depends(any_caller_of_service)],
    )
