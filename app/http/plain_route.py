"""Routes whose functions read their requests themselves, once their guard lets the caller pass."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.http.declared import guard_of


class PlainRoute(APIRoute):
    """Calls its function with the request and the texts of the path's parameters, nothing else.

    Queries and bodies are read strictly and by hand, so there is nothing that FastAPI could solve
    for each request; a third of the time of a resolve went there. It still matches, documents and
    guards.
    """

    answer: Callable[[Request], Coroutine[Any, Any, Response]]
    """Answers a request whose path has no parameters."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request; FastAPI's own extension point.

        Raises:
            UndeclaredRouteError: The function declares no guard.
        """
        function = self.endpoint
        guard = guard_of(function)

        async def answer(request: Request) -> Response:
            request.scope["state"]["granted"] = await guard(request)
            response: Response = await function(request)
            return response

        async def answer_with_parameters(request: Request) -> Response:
            request.scope["state"]["granted"] = await guard(request)
            response: Response = await function(request, **request.path_params)
            return response

        self.answer = answer
        return answer_with_parameters
