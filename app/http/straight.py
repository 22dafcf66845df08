"""The short way to a route: where the path and the method alone tell which one it is."""

from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from app.domain.errors import QuotaError
from app.http.plain_route import PlainRoute

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


class Straight:
    """Calls plain routes without parameters in their paths; everything else is the application's.

    What stands between FastAPI's door and such a route, five layers of middleware and a search
    through the routes, does nothing for it and takes as long as a resolve. A route asks its guard
    itself, and errors go to the application's own handlers.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes = {
            (method, route.path): route
            for route in reversed(app.routes)
            if isinstance(route, PlainRoute) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        route = None
        if scope["type"] == "http" and not scope.get("root_path"):
            route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["app"], scope["route"], scope["path_params"] = self._app, route, {}
        request = Request(scope, receive, send)
        try:
            response = await route.answer(request)
        except Exception as error:
            handler = self._handler(error)
            if handler is None:
                raise
            response = await handler(request, error)
        try:
            await response(scope, receive, send)
        except QuotaError as error:
            message = "an error after the answer had begun"
            raise RuntimeError(message) from error

    def _handler(self, error: Exception) -> ErrorHandler | None:
        """Return what answers an error; for faults that is whoever called. As in starlette."""
        handlers = self._app.exception_handlers
        kinds = (kind for kind in type(error).__mro__ if kind is not Exception)
        found = next((handlers[kind] for kind in kinds if kind in handlers), None)
        return cast("ErrorHandler | None", found)
