"""What the routes call, built by the wiring and passed in."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from starlette.requests import Request
from starlette.types import Scope

from app.domain.entities import Caller
from app.http.authentication.authenticator import Presented
from app.http.authentication.proxies import NO_PROXIES, TrustedProxies
from app.http.metrics import HttpMetrics
from app.http.rate_limits import RateLimits
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.revert import RevertAlterations
from app.service.auth.authentication_failures import AuthenticationFailures
from app.service.auth.authorize import Authorizer
from app.service.auth.denials import DeniedAttempts
from app.service.auth.policy import PolicyGuard
from app.service.ports.brokers import ClusterIdentity, ScramCredentialSource
from app.service.ports.plans import PlanStore
from app.service.queries.analytics import Analytics
from app.service.queries.audit import AuditTrail
from app.service.queries.describe import DescribeQuotas
from app.service.queries.resolve import ResolveQuotas
from app.service.runtime.dependencies import Readiness


class Authenticator(Protocol):
    """Turns a credential into a caller."""

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller.

        Raises:
            UnreadableRequestError: Several credentials.
            UnauthenticatedError: No valid credential.
            NotSentError: The identity provider cannot be asked.
        """
        ...

    def plain_caller(self, scope: Scope) -> Caller | None:
        """Return the caller where that is plain to see; null where it must be asked for.

        Args:
            scope: Of a request whose peer is no proxy.
        """
        ...


@dataclass(frozen=True, slots=True)
class CallerServices:
    """What a caller has instead of everybody's, whose requests run as the caller."""

    authorizer: Authorizer
    describe: DescribeQuotas
    alter: AlterQuotas
    revert: RevertAlterations
    resolve: ResolveQuotas


@dataclass(frozen=True, slots=True)
class Services:
    """Everything behind the routes."""

    authenticator: Authenticator
    authorizer: Authorizer
    denials: DeniedAttempts
    describe: DescribeQuotas
    alter: AlterQuotas
    revert: RevertAlterations
    resolve: ResolveQuotas
    audit: AuditTrail
    cluster: ClusterIdentity
    check_cluster: Callable[[], None]
    analytics: Analytics
    plans: PlanStore
    policy: PolicyGuard
    scram: ScramCredentialSource
    readiness: Readiness
    metrics: HttpMetrics
    limits: RateLimits
    brokers: Callable[[], Awaitable[Mapping[str, Any]]]
    failures: AuthenticationFailures = field(default_factory=AuthenticationFailures)
    proxies: TrustedProxies = NO_PROXIES

    def of_caller(self, own: CallerServices) -> "Services":
        """Return these, with those that a caller has of its own."""
        return replace(
            self,
            authorizer=own.authorizer,
            describe=own.describe,
            alter=own.alter,
            revert=own.revert,
            resolve=own.resolve,
        )


def services_of(request: Request) -> Services:
    """Return what answers this request: of its caller's session, or everybody's."""
    state = request.scope["state"]
    services: Services | None = state.get("services")
    if services is None:
        services = state["services"] = request.scope["app"].state.services
    return services
