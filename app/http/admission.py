"""Who comes in: authentication, and the limits of what one caller may have."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.requests import Request

from app.domain.entities import Caller
from app.domain.errors import UnauthenticatedError
from app.http.authentication.basic import SessionCaller
from app.http.authentication.presented import presented_by
from app.http.errors import UntrustedIdentityError
from app.http.large_bodies import SMALL_BYTES
from app.http.limits import read_json_body
from app.http.rate_limits import Limited
from app.http.request_context import ON_OPERATIONS_PORT, context_of, remember_caller
from app.http.services import Services, services_of
from app.http.strict_json import JsonObject, parse_object

T = TypeVar("T")

_WITHOUT_BODY: Final = frozenset({"GET", "HEAD"})


async def admitted(request: Request, kind: Limited) -> Caller:
    """Return the caller of the request; needs no permission of the cluster.

    Raises:
        UnauthenticatedError: No valid credential.
        UntrustedIdentityError: One in another's name.
        NotSentError: The identity provider cannot be asked.
        RateLimitedError: One request too many, or too many bad credentials from one address.
        WrongClusterError: Another cluster answers than the one that is served.
    """
    services = services_of(request)
    caller = None
    if not services.proxies.networks:
        caller = services.authenticator.plain_caller(request.scope)
    if caller is None:
        caller = await _authenticated(request, services)
    remember_caller(request, caller)
    services.limits.admit(caller.principal, kind)
    services.check_cluster()
    if request.scope["method"] in _WITHOUT_BODY:
        begin_work(request)
    return caller


def admit_without_credential(request: Request) -> None:
    """Count a request of a public route.

    Neither the operations port nor a proxy that names no caller has a limit.

    Raises:
        RateLimitedError: One too many from one address.
    """
    if request.scope["state"].get(ON_OPERATIONS_PORT, False):
        return
    services = services_of(request)
    presented = presented_by(request, services.proxies)
    if presented.is_from_proxy and presented.address == presented.peer:
        return
    route = getattr(request.scope.get("route"), "path", "")
    services.limits.admit_public(presented.address or presented.peer, route)


async def _authenticated(request: Request, services: Services) -> Caller:
    presented = presented_by(request, services.proxies)
    try:
        caller = await services.authenticator.authenticate(presented)
    except (UnauthenticatedError, UntrustedIdentityError) as refusal:
        context = context_of(request)
        context.refused_credential, context.refused_method = refusal.code, refusal.method
        address = presented.address or presented.peer
        services.failures.count(address, refusal.method, refusal.code)
        services.limits.admit_failure(address)
        raise
    return _in_session(request, caller) if isinstance(caller, SessionCaller) else caller


def _in_session(request: Request, caller: SessionCaller) -> Caller:
    """Let the session's services answer this request, and hold the session until its end."""
    context_of(request).at_end.append(caller.lease.release)
    request.scope["state"]["services"] = services_of(request).of_caller(
        caller.lease.content.services
    )
    return caller.without_session()


def begin_work(request: Request) -> None:
    """Count the request as being worked on until its answer begins.

    A body that is still arriving is no work: slow callers do not use up their principal's share.

    Raises:
        RateLimitedError: The principal has as many as it may.
    """
    context = context_of(request)
    context.end_work = services_of(request).limits.begin(context.principal or "")


async def read_object(request: Request, read: Callable[[JsonObject], T]) -> T:
    """Read the body of an admitted request, a JSON object; a large body waits for a slot.

    Args:
        request: Its caller may do what it asks for.
        read: Makes something of the object; for a large body in a thread of its own.

    Raises:
        QuotaError: As ``read_json_body``, ``begin_work``, ``parse_object`` and ``read``.
    """
    principal = context_of(request).principal or ""
    async with services_of(request).limits.bodies.slot(principal) as slot:
        body = await read_json_body(request, slot)
        begin_work(request)
        if len(body) <= SMALL_BYTES:
            return read(parse_object(body))
        return await asyncio.to_thread(lambda: read(parse_object(body)))
