"""Who calls, and may they: the dependency that stands first in each route; what is behind them.

Authentication, limits and Kafka's question come before the body is read.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import compress
from typing import Annotated, Any, Final, NamedTuple, NoReturn

from fastapi import Depends, Request

from app.domain.authorization import Operation
from app.domain.entities import Caller
from app.domain.errors import NotFoundError, UnauthenticatedError, Violation
from app.http.authentication.authenticator import (
    Authenticator,
    LoggedIn,
    Presented,
    several_credentials,
)
from app.http.authentication.proxies import NO_PROXIES, TrustedProxies
from app.http.errors import InvalidTokenError, UntrustedIdentityError
from app.http.middleware import ON_OPERATIONS_PORT, RefusedCredential, action_of, context_of
from app.http.query_params import QueryParameters, read_query
from app.http.rate_limits import Limited, RateLimits
from app.http.responses import ANY, ASKING, READING
from app.metrics import ClusterMetrics, Metrics, Phase
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.replace import RevertAlterations
from app.service.auth.actors import Actor, ActorOf
from app.service.auth.authorize import (
    MAX_ACL_AGE_S,
    Access,
    AuditTrail,
    Evidence,
    Grant,
    PolicyGuard,
)
from app.service.auth.denials import (
    DeniedAttempt,
    DeniedAttempts,
    ReadChange,
    RequestedChange,
)
from app.service.event_feed import EventFeed
from app.service.ports.alterations import Confirm
from app.service.ports.brokers import ClusterIdentity, DescribeScramUsers
from app.service.ports.plans import PlanStore
from app.service.queries.analytics import Analytics
from app.service.queries.describe import DescribeQuotas
from app.service.queries.resolve import ResolveQuotas
from app.service.queries.temporary import TemporaryValues
from app.service.runtime.readiness import SOON_S, Readiness


@dataclass(frozen=True, slots=True)
class Services:
    """Everything behind the routes of one cluster.

    Attributes:
        name: The cluster's, in paths and metrics.
        own_account: Makes the actors of callers who are not logged in at the brokers.
        cluster_now: Returns the id of the cluster that answered last; null before one has.
    """

    name: str
    authenticators: Sequence[Authenticator]
    own_account: ActorOf
    denials: DeniedAttempts
    describe: DescribeQuotas
    alter: AlterQuotas
    revert: RevertAlterations
    temporary: TemporaryValues
    resolve: ResolveQuotas
    audit: AuditTrail
    feed: EventFeed
    cluster: ClusterIdentity
    check_cluster: Callable[[], None]
    cluster_now: Callable[[], str | None]
    analytics: Analytics
    plans: PlanStore
    policy: PolicyGuard
    scram_users: DescribeScramUsers
    readiness: Readiness
    metrics: ClusterMetrics
    limits: RateLimits
    brokers: Callable[[], Awaitable[Mapping[str, Any]]]
    proxies: TrustedProxies = NO_PROXIES


@dataclass(slots=True)
class ServedClusters:
    """The clusters of this service, as they are now.

    Attributes:
        default: Which one answers where none is named.
        services: What answers, by name, in the order of the file; never changed, another mapping
            takes its place.
        readiness: Of what all of them need.
        metrics: Of the process.
    """

    default: str
    services: Mapping[str, Services]
    readiness: Readiness
    metrics: Metrics

    def named(self, name: str) -> Services:
        """Return what answers for a cluster.

        Raises:
            NotFoundError: None has that name.
        """
        if name not in self.services:
            raise NotFoundError(NO_SUCH_CLUSTER, code="no-such-cluster")
        return self.services[name]


NO_SUCH_CLUSTER: Final = "There is no cluster of that name; GET /clusters lists all."


CLUSTERS: Final = "/clusters"
_OF_SERVICE: Final = frozenset(
    {"/livez", "/readyz", "/metrics", "/version", "/docs", "/openapi.json", CLUSTERS}
)


def is_of_service(path: str) -> bool:
    """Tell whether a path is about no cluster, and so stands below none."""
    return path in _OF_SERVICE or path.startswith(f"{CLUSTERS}/")


def served_by(request: Request) -> ServedClusters:
    """Return the clusters of the service that answers."""
    served: ServedClusters = request.scope["app"].state.clusters
    return served


def services_of(request: Request) -> Services:
    """Return what answers this request, whatever becomes of its cluster meanwhile."""
    services: Services = request.scope["state"]["services"]
    return services


def actor_of(request: Request) -> Actor:
    """Return who acts, behind the guard of a route that is not for everybody."""
    actor: Actor = request.scope["state"]["actor"]
    return actor


def presented_by(request: Request, proxies: TrustedProxies) -> Presented:
    """Return what the request shows."""
    scope, headers = request.scope, request.headers
    client = scope.get("client")
    peer = client[0] if client else ""
    is_encrypted = scope.get("scheme") == "https"
    certificate = _certificate(request)
    if not proxies.networks:
        return Presented(headers, peer, peer, is_encrypted, False, certificate)
    noted = headers.getlist(proxies.header.value)
    address, is_proxy = proxies.caller_of(peer, noted), proxies.trust(peer)
    is_encrypted = is_encrypted or (is_proxy and proxies.received_tls(headers))
    return Presented(headers, peer, address, is_encrypted, is_proxy, certificate)


def _certificate(request: Request) -> bytes | None:
    """Return the certificate of the TLS connection. Source: ASGI's TLS extension."""
    chain = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    return ssl.PEM_cert_to_DER_cert(chain[0]) if chain else None


_CERTIFICATE_HEADER: Final = re.compile(r"clientcert|ssl(client|cert)|tlsclient|xfcc")
"""``Client-Cert``, ``X-Forwarded-Client-Cert`` and what other proxies call them, such as
``X-SSL-Client-Cert``, ``X-Forwarded-Tls-Client-Cert`` or ``X-ARR-ClientCert``; in any case, with
dashes, underscores or dots, for a proxy may take these for the same."""

_SEPARATORS: Final = re.compile(r"[-_.]")


def refuse_forged_identity(presented: Presented) -> None:
    """Refuse such headers, which nobody is believed about; of a trusted proxy they are ignored.

    Raises:
        UntrustedIdentityError: There is one.
    """
    if presented.is_from_proxy:
        return
    forged = sorted(filter(_names_a_certificate, set(presented.headers)))
    if not forged:
        return
    detail = "No header is believed about a certificate; show it to this service itself."
    violations = [
        Violation(name, UntrustedIdentityError.default_code, "Leave this header out.")
        for name in forged
    ]
    raise UntrustedIdentityError(detail, violations=violations)


@lru_cache(maxsize=1024)
def _names_a_certificate(name: str) -> bool:
    return _CERTIFICATE_HEADER.search(_SEPARATORS.sub("", name.lower())) is not None


async def authenticate(
    presented: Presented, authenticators: Sequence[Authenticator]
) -> Caller | LoggedIn:
    """Ask the one authenticator whose credential a request shows.

    Raises:
        UnreadableRequestError: Several credentials are presented, or one in another's name.
        UnauthenticatedError: None is, or it is not good.
        NotSentError: What is needed to judge it cannot be had.
    """
    refuse_forged_identity(presented)
    presenting = [kind for kind in authenticators if kind.is_presented(presented)]
    if len(presenting) > 1:
        raise several_credentials("Show exactly one credential.")
    try:
        if not presenting:
            _ask_for_credential(presented, authenticators)
        return await presenting[0].authenticate(presented)
    except UnauthenticatedError as refusal:
        if presenting:
            refusal.method = presenting[0].name
        schemes = [kind.scheme for kind in (*presenting, *authenticators)]
        refusal.schemes = tuple(dict.fromkeys(schemes))
        raise


def _ask_for_credential(presented: Presented, authenticators: Sequence[Authenticator]) -> NoReturn:
    first, *others = (kind.advice for kind in authenticators)
    advice = ", or ".join([first, *(kind[0].lower() + kind[1:] for kind in others)]) + "."
    if "authorization" in presented.headers:
        raise InvalidTokenError(f"The Authorization header is of no accepted kind. {advice}")
    raise UnauthenticatedError(advice)


async def authenticate_and_limit(request: Request, kind: Limited) -> Actor:
    """Return who acts; needs no permission of the cluster.

    Raises:
        UnauthenticatedError: No valid credential.
        UntrustedIdentityError: One in another's name.
        NotSentError: The identity provider cannot be asked.
        RateLimitedError: One request too many, or too many bad credentials from one address.
    """
    services, context = services_of(request), context_of(request)
    actor = await _authenticate(request, context.held)
    context.caller, request.scope["state"]["actor"] = actor.caller, actor
    services.limits.admit(actor.caller.principal, kind)
    return actor


async def _authenticate(request: Request, held: ExitStack) -> Actor:
    """Return who acts; a session at the brokers is held until the end of ``held``."""
    services = services_of(request)
    presented = presented_by(request, services.proxies)
    try:
        found = await authenticate(presented, services.authenticators)
        if isinstance(found, LoggedIn):
            held.callback(found.lease.release)
            return found.lease.content.actor(found.caller)
        return services.own_account(found)
    except (UnauthenticatedError, UntrustedIdentityError) as refusal:
        address = presented.address or presented.peer
        context_of(request).refusal = RefusedCredential(refusal.method, refusal.code, address)
        services.limits.admit_failure(address)
        raise


def begin_work(request: Request) -> None:
    """Count the request as being worked on until its answer begins.

    A body that is still arriving is no work: slow callers do not use up their principal's share.

    Raises:
        RateLimitedError: The principal has as many as it may.
    """
    context = context_of(request)
    context.work.callback(services_of(request).limits.begin(context.principal or ""))


class Guard:
    """A dependency that lets a caller pass, or raises the refusal; the first one of each route.

    FastAPI solves dependencies in their order, so nothing else is read before it.

    Attributes:
        problems: What the document says can go wrong, whatever the route.
        alters: Whether the route changes the cluster: right before that the caller is judged again.
            Other routes do that behind the body.
        takes_any_query: Whether the query is not looked at.
    """

    problems: tuple[str, ...] = ANY
    alters = False
    takes_any_query = False

    async def __call__(self, request: Request) -> "Granted | None":
        """Return why the caller passes; null for a route that everybody may call.

        Raises:
            QuotaError: The caller does not, or sends a query to a route that takes none.
        """
        granted = await self.admit(request)
        query_string = request.scope["query_string"]
        if query_string and not (self.takes_any_query or request.scope["route"].query):
            read_query(query_string, QueryParameters)
        return granted

    async def admit(self, request: Request) -> "Granted | None":
        """Judge the caller alone; else as the call."""
        raise NotImplementedError


class Everybody(Guard):
    """Lets everybody pass, with a credential or without."""

    def __init__(self, *, takes_any_query: bool = False) -> None:
        self.takes_any_query = takes_any_query

    async def admit(self, request: Request) -> None:
        """Count the request; neither the operations port nor a proxy that names no caller counts.

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


class Granted(NamedTuple):
    """Who may act, why, and what asks again right before the act; see ``Grant``."""

    actor: Actor
    evidence: Evidence
    confirm: Confirm


ReadDenied = Callable[[Request], Awaitable[RequestedChange]]


class Permission(Guard):
    """Lets a caller pass who has an operation on the cluster; records the attempts of others.

    Args:
        operation: What the route does with the cluster; null lets everybody pass who shows a good
            credential, and the route itself looks at what is whose.
        or_audit: Whether the ``audit`` permission suffices instead.
        max_age_s: How old the evidence may be when it is confirmed, in seconds; null is as old as
            it may be for the operation.
        read_denied: Returns what a denied request asked for, for the audit log.
        of_service: Whether the route is of the service itself, whatever its clusters do.
    """

    def __init__(
        self,
        operation: Operation | None,
        *,
        or_audit: bool = False,
        max_age_s: float | None = None,
        read_denied: ReadDenied | None = None,
        of_service: bool = False,
    ) -> None:
        self._of_service = of_service
        self.operation = operation
        self.or_audit = or_audit
        self._max_age_s = max_age_s
        self._read_denied = read_denied
        self.alters = operation is Operation.ALTER_CONFIGS
        self.problems = ASKING if operation is None else READING
        if or_audit:
            self.problems = (*ASKING, "NotAuthorized")

    async def admit(self, request: Request) -> Granted:
        """Return who passes.

        Raises:
            UnauthenticatedError: No valid credential.
            RateLimitedError: The caller asks for too much.
            ClusterAuthorizationError: The caller may not; the attempt is in the audit log.
            WrongClusterError: Another cluster answers than the one that is served.
            NotSentError: The ACLs cannot be had.
        """
        limited = Limited.ALTERATIONS if self.alters else Limited.READS
        if self._of_service:
            request.scope["state"]["services"] = await _one_that_answers(served_by(request))
        actor = await authenticate_and_limit(request, limited)
        if not self._of_service:
            services_of(request).check_cluster()
        read = None
        if self._read_denied is not None:
            read = partial(self._read_denied, request)
        evidence = await self._judge(request, actor, read)
        ask_again = partial(self._ask_again, request, actor.caller)
        max_age_s = self._max_age_s or MAX_ACL_AGE_S[self.operation or Operation.DESCRIBE]
        grant = Grant(evidence, ask_again, max_age_s)
        if request.scope["route"].body_field is None:
            begin_work(request)
        elif not self.alters:
            context_of(request).confirm = partial(grant.confirm, (), None)
        return Granted(actor, evidence, grant.confirm)

    async def _ask_again(self, request: Request, caller: Caller, read: ReadChange) -> Evidence:
        """Judge the credential and the right once more, of whatever kind they are."""
        with ExitStack() as held:
            again = await _authenticate(request, held)
            if again.caller.principal != caller.principal:
                raise InvalidTokenError("The credential is another caller's now; send it again.")
            return await self._judge(request, again, read)

    async def _judge(self, request: Request, actor: Actor, read: ReadChange | None) -> Evidence:
        services, caller, authorizer = services_of(request), actor.caller, actor.authorizer
        if self.operation is None:
            return {}
        if self.or_audit and authorizer.is_auditor(caller):
            return {"rule": "auditor"}
        metrics = services.metrics
        with metrics.alterations.timed(Phase.AUTHZ) if self.alters else nullcontext():
            access = await authorizer.decide(caller, self.operation)
        _count_decision(metrics, self.operation, access)
        if access.refusal is not None:
            request_id, action = request.state.request_id, action_of(request)
            attempt = DeniedAttempt(request_id, action, access.evidence, read)
            await services.denials.record(caller, access.refusal, attempt)
            raise access.refusal
        return access.evidence


async def _one_that_answers(served: ServedClusters) -> Services:
    """Return where callers log in who ask the service itself: the default cluster while it answers.

    Without another one that answers it is the default, too.
    """
    default = served.services[served.default]
    if len(served.services) == 1 or await _is_ready(default):
        return default
    all_of_them = served.services.values()
    ready = await asyncio.gather(*map(_is_ready, all_of_them))
    return next(compress(all_of_them, ready), default)


async def _is_ready(services: Services) -> bool:
    return not await services.readiness.problems(for_write=False, within_s=SOON_S)


def _count_decision(metrics: ClusterMetrics, operation: Operation, access: Access) -> None:
    result = "allowed" if access.refusal is None else "denied"
    metrics.authorizations.labels(operation.value, result).inc()
    age_s = access.evidence.get("acl_age_s")
    if age_s is not None:
        metrics.acl_age.set(age_s)


async def permissions_of(actor: Actor) -> Mapping[str, bool]:
    """Return what a caller may do on the cluster of its actor.

    Raises:
        NotSentError: The ACLs cannot be had.
    """
    caller, authorizer = actor.caller, actor.authorizer

    async def may(operation: Operation) -> bool:
        return (await authorizer.decide(caller, operation)).refusal is None

    return {
        "describe": await may(Operation.DESCRIBE_CONFIGS),
        "alter": await may(Operation.ALTER_CONFIGS),
        "audit": authorizer.is_auditor(caller),
        "scram": await may(Operation.DESCRIBE),
    }


may_describe: Final = Permission(Operation.DESCRIBE_CONFIGS)
"""Lets a caller pass who has describe permission on the cluster."""

may_alter: Final = Permission(Operation.ALTER_CONFIGS)
"""Lets a caller pass who has alter permission on the cluster."""

may_list_scram: Final = Permission(Operation.DESCRIBE)
"""Lets a caller pass who may list the SCRAM credentials of all users at a broker: KIP-554 asks for
DESCRIBE on the cluster."""

may_read_audit: Final = Permission(Operation.DESCRIBE_CONFIGS, or_audit=True)
"""Lets auditors pass, and callers with describe permission, who see their own rows."""

may_follow_audit: Final = Permission(Operation.DESCRIBE_CONFIGS, or_audit=True, max_age_s=10.0)
"""The same for an answer that does not end: the caller is judged again and again."""

any_caller: Final = Permission(None)
"""Lets every caller pass who shows a valid credential."""

any_caller_of_service: Final = Permission(None, of_service=True)
"""The same for a route that is about no cluster, or about all."""

everybody: Final = Everybody()
PUBLIC: Final = [Depends(everybody)]
"""The dependencies of a route that answers without a credential."""

everybody_with_any_query: Final = Everybody(takes_any_query=True)
PUBLIC_PAGE: Final = [Depends(everybody_with_any_query)]
"""Those of a page that everybody sees, whatever the query."""

MayDescribe = Annotated[Granted, Depends(may_describe)]
MayAlter = Annotated[Granted, Depends(may_alter)]
MayReadAudit = Annotated[Granted, Depends(may_read_audit)]
MayFollowAudit = Annotated[Granted, Depends(may_follow_audit)]
AnyCaller = Annotated[Granted, Depends(any_caller)]
AnyCallerOfService = Annotated[Granted, Depends(any_caller_of_service)]
