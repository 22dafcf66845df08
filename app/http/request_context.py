"""What a request is known by in logs, metrics and answers."""

from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Scope

from app.domain.entities import Caller

ON_OPERATIONS_PORT: Final = "on_operations_port"
"""In the state of a connection: whether it came in at the port for operations."""


@dataclass(slots=True)
class RequestContext:
    """One request.

    Attributes:
        request_id: The caller's own or made here.
        principal: Who calls, once known.
        authentication: How the caller proved it, once known.
        problem_code: The code of the problem that was answered, if one was.
        refused_credential: The code of the problem with the credential, if there was one.
        refused_method: Which method of authentication it was that refused it.
        end_work: Tells that the request is no longer worked on; null before and after that.
        caller: Who calls, once known.
        at_end: What is done when the request has ended, however it ends.
    """

    request_id: str
    principal: str | None = None
    authentication: str | None = None
    problem_code: str | None = None
    refused_credential: str | None = None
    refused_method: str = "none"
    end_work: Callable[[], None] | None = None
    caller: Caller | None = None
    at_end: list[Callable[[], None]] = field(default_factory=list)

    def has_ended(self) -> None:
        """Let go of what the request held."""
        if self.end_work is not None:
            self.work_has_ended()
        while self.at_end:
            self.at_end.pop()()

    def work_has_ended(self) -> None:
        """Count the request as done, once."""
        if self.end_work is not None:
            self.end_work()
            self.end_work = None


_current: Final[ContextVar[RequestContext | None]] = ContextVar("request", default=None)


def open_context(scope: Scope, request_id: str) -> RequestContext:
    """Attach a context to the request; every log line from here on carries the request id.

    Routes find it as ``request.state.context``, the id also as ``request.state.request_id``.
    """
    context = RequestContext(request_id)
    state = scope.setdefault("state", {})
    state["context"], state["request_id"] = context, request_id
    _current.set(context)
    return context


def add_request(
    _logger: Any, _name: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the request that this is done for to a log event. A processor of structlog."""
    context = _current.get()
    if context is not None:
        event["request_id"] = context.request_id
        if context.principal is not None:
            event["principal"] = context.principal
    return event


def context_of(request: Request) -> RequestContext:
    """Return the context of a request."""
    context: RequestContext = request.scope["state"]["context"]
    return context


def remember_caller(request: Request, caller: Caller) -> None:
    """Note who calls, for the log lines and metrics of this request."""
    context = context_of(request)
    context.caller = caller
    context.principal = caller.principal
    context.authentication = caller.authentication


def action_of(request: Request) -> str:
    """Return the method and the path of the route, without what the caller wrote into it."""
    route = request.scope.get("route")
    return f"{request.method} {getattr(route, 'path', request.url.path)}"
