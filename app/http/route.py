"""The one kind of route: it judges the caller before anything of the request is read."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute

from app.http.guards import Everybody, Guard, begin_work, read_object
from app.http.headers import read_key
from app.http.query_params import StrictQuery, no_parameters
from app.http.request_body import JsonObject
from app.http.responses import CALLER, CHANGING, TIED, WITH_BODY, problems, reference
from app.http.validation import validated
from app.service.alterations.command import IdempotencyKey


async def _idempotency_key(request: Request) -> IdempotencyKey | None:
    key: IdempotencyKey | None = request.scope["state"]["idempotency_key"]
    return key


Key = Annotated[IdempotencyKey | None, Depends(_idempotency_key)]
"""The request's ``Idempotency-Key`` with a fingerprint of its body."""


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
    """A route of FastAPI's that reads nothing before its guard has let the caller pass.

    In this order: the guard, the query, the body; then FastAPI's own handler, which finds a body
    that is read and validated. A large one was, in a thread of its own. What these may refuse
    stands in the document by itself.
    """

    guard: Guard
    query: StrictQuery[Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.path = self.path_format
        extra = self.openapi_extra or {}
        self.openapi_extra = {
            "security": [] if isinstance(self.guard, Everybody) else CALLER,
            **extra,
            "parameters": [
                *self.query.openapi_parameters,
                *(TIED if self._keyed else ()),
                *extra.get("parameters", ()),
                reference("X-Request-Id", "parameters"),
            ],
        }
        self.responses = {**problems(*self._problems()), **self.responses}

    def _problems(self) -> Iterator[str]:
        """Yield what can go wrong with a route of this kind; the last of a status counts."""
        names = [parameter["name"] for parameter in self.query.openapi_parameters]
        yield from self.guard.problems
        if names or self.body_field is not None:
            yield "InvalidRequest"
        if "page_token" in names:
            yield "UnreadableOrStale"
        if self.body_field is not None:
            yield from WITH_BODY
        if self._keyed:
            yield from CHANGING

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request; FastAPI's own extension point.

        Raises:
            UndeclaredRouteError: The function declares no guard.
        """
        dependencies = self.dependant.dependencies
        calls = [dependency.call for dependency in dependencies]
        guards = [call for call in calls if isinstance(call, Guard)]
        if guards:  # FastAPI asks again where a router is included, and they are taken out by then
            self.guard = guards[0]
        elif not hasattr(self, "guard"):
            name = getattr(self.endpoint, "__qualname__", repr(self.endpoint))
            message = f"{name} declares neither a permission nor that it is public."
            raise UndeclaredRouteError(message)
        queries = (call for call in calls if isinstance(call, StrictQuery))
        self.query = next(queries, no_parameters)
        self._keyed = _idempotency_key in calls
        # What nobody wants the value of need not be solved for each request.
        self.dependant.dependencies = [
            dependency for dependency in dependencies if dependency.name is not None
        ]
        handle, guard, query = super().get_route_handler(), self.guard, self.query
        body = self.body_field
        begins = body is None and self.methods != {"GET"}

        async def answer(request: Request) -> Response:
            state = request.scope["state"]
            state["granted"] = await guard.admit(request)
            state["query"] = query.read(request.scope["query_string"])
            content = None
            if body is not None:
                content = await read_object(request, partial(read, request))
            else:
                self._read_key(request, state["query"])
                if begins:
                    begin_work(request)
            return await handle(ReadRequest(request, content))

        model: Any = None if body is None else body.field_info.annotation

        def read(request: Request, document: JsonObject) -> BaseModel:
            content: BaseModel = validated(model, document)
            self._read_key(request, document)
            return content

        return answer

    def _read_key(self, request: Request, asked: Any) -> None:
        """Read the ``Idempotency-Key`` where it is wanted; a body or a query is what is asked."""
        if self._keyed:
            route = " ".join((self.path, *request.path_params.values()))
            document = asked.model_dump() if isinstance(asked, BaseModel) else asked
            key = read_key(request.headers, route, document)
            request.scope["state"]["idempotency_key"] = key


class ReadRequest(Request):
    """A request that is read already; FastAPI finds the body's model where it looks for JSON."""

    query_params = QueryParams()

    def __init__(self, request: Request, content: BaseModel | None) -> None:
        super().__init__(request.scope, request.receive)
        self._content = content

    async def body(self) -> bytes:
        """Return something: what it was is not needed any more."""
        return b"{}"

    async def json(self) -> Any:
        """Return the model."""
        return self._content


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
