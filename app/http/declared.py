"""Every route declares who may call it; an application with one that does not never starts."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

from starlette.requests import Request
from starlette.routing import BaseRoute

from app.http.admission import admit_without_credential

_ATTRIBUTE: Final = "__declared_guard__"

Function = TypeVar("Function", bound=Callable[..., Any])


class Guard(Protocol):
    """Lets a caller pass, or raises the refusal; what it returns is kept with the request."""

    def __call__(self, request: Request, /) -> Awaitable[object]:
        """Return why the caller passes.

        Raises:
            QuotaError: The caller does not.
        """
        ...


class UndeclaredRouteError(Exception):
    """A route says neither who may call it nor that everybody may; the text names it."""


async def everybody(request: Request) -> None:
    """Let everybody pass, with a credential or without; the guard of the public routes.

    Raises:
        RateLimitedError: One request too many from one address.
    """
    admit_without_credential(request)


def requires(guard: Guard) -> Callable[[Function], Function]:
    """Declare who may call a route; stands below the router's own decorator.

    ``PlainRoute`` asks the guard before anything of the request is read, its body above all.
    """

    def declare(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, guard)
        return function

    return declare


def public(function: Function) -> Function:
    """Declare that a route answers without a credential."""
    return requires(everybody)(function)


def guard_of(function: Callable[..., Any]) -> Guard:
    """Return the guard of a route's function.

    Raises:
        UndeclaredRouteError: It has none.
    """
    guard: Guard | None = getattr(function, _ATTRIBUTE, None)
    if guard is None:
        name = getattr(function, "__qualname__", repr(function))
        message = f"{name} declares neither a permission nor that it is public."
        raise UndeclaredRouteError(message)
    return guard


def refuse_undeclared(routes: Iterable[BaseRoute], guarding: type[BaseRoute]) -> None:
    """Look at the live table of routes, and into what is mounted.

    Args:
        routes: Of the application.
        guarding: The kind of route that asks its guard; of any other kind a declaration would
            be an empty promise.

    Raises:
        UndeclaredRouteError: With a line for each route that declares nothing or is not guarded.
    """
    faults = [fault for route in routes for fault in _faults(route, guarding)]
    if faults:
        raise UndeclaredRouteError("\n".join(faults))


def _faults(route: BaseRoute, guarding: type[BaseRoute]) -> Iterator[str]:
    place = f"The route {getattr(route, 'path', None) or type(route).__name__}"
    inner = getattr(route, "routes", None)
    if inner:
        for one in inner:
            yield from _faults(one, guarding)
    elif not isinstance(route, guarding):
        yield f"{place} is not of the kind that asks a permission."
    else:
        try:
            guard_of(getattr(route, "endpoint", route))
        except UndeclaredRouteError as error:
            yield f"{place}: {error}"
