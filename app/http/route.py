"""The one kind of route: what it must declare, and what the document says of it."""

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, Path, params
from fastapi.routing import APIRoute
from fastapi.utils import create_model_field
from starlette.routing import BaseRoute

from app.http.guards import Everybody, Guard
from app.http.query_params import StrictQuery, openapi_parameters
from app.http.request_body import JsonBody
from app.http.responses import CALLER, CHANGING, TIED, WITH_BODY, problems, reference


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's function as OpenAPI's tools like it: ``alterQuotas``."""
    first, *others = route.name.split("_")
    return first + "".join(word.title() for word in others)


def feature_router(tag: str) -> APIRouter:
    """Return a router for the routes of a feature, which stand under a tag in the document."""
    return APIRouter(tags=[tag], route_class=GuardedRoute, generate_unique_id_function=operation_id)


def path_id(name: str, where: str, pattern: str) -> Any:
    """Return what an id in a path is; an id of another form is an id that nothing has."""
    return Path(description=f"The `{name}` of {where}.", json_schema_extra={"pattern": pattern})


class UndeclaredRouteError(Exception):
    """A route says neither who may call it nor that everybody may; the text names it."""


class GuardedRoute(APIRoute):
    """A route of FastAPI's whose first dependency is its guard; the document says what follows.

    Raises:
        UndeclaredRouteError: The function declares no guard, or something else before it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.path = self.path_format
        calls = [dependency.call for dependency in self.dependant.dependencies]
        guard = calls[0] if calls else None
        if not isinstance(guard, Guard):
            name = getattr(self.endpoint, "__qualname__", repr(self.endpoint))
            message = f"{name} declares neither a permission nor that it is public."
            raise UndeclaredRouteError(message)
        self.guard = guard
        queries = [call for call in calls if isinstance(call, StrictQuery)]
        self.query = openapi_parameters(queries[0].model) if queries else []
        for body in (call for call in calls if isinstance(call, JsonBody)):
            # For the document alone: what answers requests was built without it.
            field = params.Body(annotation=body.model)
            self.body_field = create_model_field("body", body.model, field_info=field)
        extra = self.openapi_extra or {}
        self.openapi_extra = {
            "security": [] if isinstance(guard, Everybody) else CALLER,
            **extra,
            "parameters": [
                *self.query,
                *(TIED if guard.alters else ()),
                *extra.get("parameters", ()),
                reference("X-Request-Id", "parameters"),
            ],
        }
        self.responses = {**problems(*self._problems()), **self.responses}

    def _problems(self) -> Iterator[str]:
        """Yield what can go wrong with a route of this kind; the last of a status counts."""
        parameters = [parameter["name"] for parameter in self.query]
        yield from self.guard.problems
        if parameters or self.body_field is not None:
            yield "InvalidRequest"
        if "page_token" in parameters:
            yield "UnreadableOrStale"
        if self.body_field is not None:
            yield from WITH_BODY
        if self.guard.alters:
            yield from CHANGING


def refuse_undeclared(routes: Iterable[BaseRoute]) -> None:
    """Look at the live table of routes; nothing may be mounted beside them.

    Raises:
        UndeclaredRouteError: With a line for each route that is not guarded.
    """
    faults = [
        f"The route {getattr(route, 'path', None) or type(route).__name__} is not of the kind that "
        "asks a permission."
        for route in routes
        if not isinstance(route, GuardedRoute)
    ]
    if faults:
        raise UndeclaredRouteError("\n".join(faults))
