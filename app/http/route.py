"""The one kind of route, and the body that it reads behind its guard."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, params
from fastapi.routing import APIRoute
from fastapi.utils import create_model_field
from pydantic import BaseModel
from starlette.routing import BaseRoute

from app.http.guards import Everybody, Guard, begin_work, services_of
from app.http.headers import read_key
from app.http.middleware import context_of
from app.http.query_params import StrictQuery
from app.http.request_body import SMALL_BYTES, BodySlot, parse_object, read_json_body
from app.http.responses import CALLER, CHANGING, TIED, WITH_BODY, problems, reference
from app.http.validation import validated
from app.service.ports.alterations import IdempotencyKey


class JsonBody:
    """A dependency behind the guard: the body of a request, read strictly and validated.

    FastAPI itself would read a body before it solves the guard, with a parser that keeps the last
    of two equal keys.

    Args:
        model: What the body must be, and what the document says of it.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> BaseModel:
        """Return the model; a large body waits for a slot, and is parsed in a thread.

        Raises:
            QuotaError: As ``read_json_body``, ``begin_work``, ``parse_object`` and ``validated``;
                or the caller may not any more what it might before the body came.
        """
        context, alters = context_of(request), request.scope["route"].guard.alters

        def read() -> BaseModel:
            document = parse_object(body)
            content = validated(self.model, document)
            if alters:
                request.scope["state"]["idempotency_key"] = key_of(request, document)
            return content

        async with BodySlot(services_of(request).limits.bodies, context.principal or "") as slot:
            body = await read_json_body(request, slot)
            begin_work(request)
            is_small = len(body) <= SMALL_BYTES
            content = read() if is_small else await asyncio.to_thread(read)
        if context.confirm is not None:
            await context.confirm()
        return content


def key_of(request: Request, asked: Any) -> IdempotencyKey | None:
    """Return the request's ``Idempotency-Key`` with a fingerprint of what it asks.

    Raises:
        UnreadableRequestError: It cannot be one, or there are several.
    """
    route = " ".join((request.scope["route"].path, *request.path_params.values()))
    return read_key(request.headers, route, asked)


async def _key_of_body(request: Request) -> IdempotencyKey | None:
    key: IdempotencyKey | None = request.scope["state"]["idempotency_key"]
    return key


Key = Annotated[IdempotencyKey | None, Depends(_key_of_body)]
"""The key with a fingerprint of the body, behind which it stands."""


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
        self.query = queries[0].openapi_parameters if queries else []
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
