"""Builds the configured authenticators, and the sessions of callers with a broker password.

A file that cannot be used is a ``SettingsError``.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import httpx

from app.domain.entities import ALL_ENTITIES
from app.domain.errors import NotSentError
from app.http.authentication.authenticator import Authenticator
from app.http.authentication.basic import Basic
from app.http.authentication.bearer import Bearer, BearerTokens, TokensFileError
from app.http.authentication.certificates import ClientCertificates
from app.http.authentication.discovery import PageClient, SignIn
from app.http.authentication.oidc import JsonWebTokens, SigningKeys, TokenRules
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.errors import LoginFailedError
from app.http.rate_limits import LoginAttempts
from app.kafka.acls import KafkaCallerRights
from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaLogin, key_password, ssl_context
from app.kafka.handshake import LoginRefusedError
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.metrics import BrokerMetrics, Metrics
from app.service.alterations.barrier import Barrier
from app.service.auth.actors import Actor, CallerQuotaAdmin
from app.service.auth.authorize import BrokerAuthorizer, ClusterAuthorizer
from app.service.auth.sessions import Sessions
from app.service.ports.brokers import Described, QuotaReader
from app.service.runtime.clock import Patience
from app.service.runtime.tasks import AlterationTasks, Cache, SessionTasks
from app.setting_types import AuthenticatorKind
from app.settings import Settings, SettingsError, reveal, unusable_file

OpenSessions = Callable[[KafkaLogin], Sessions]
"""Makes the sessions of a kind of login."""


class Credentials:
    """The kinds of credentials that are accepted: of the service, but for logins at brokers.

    Args:
        settings: What is configured.
        metrics: Count.
        stack: Closes what is opened.
        privileged: The super users and auditors, which not every token may name.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        stack: AsyncExitStack,
        privileged: AbstractSet[str] = frozenset(),
    ) -> None:
        self._settings = settings
        self._privileged: set[str] = set()
        self.protect(privileged)
        self._attempts = LoginAttempts(partial(metrics.count_rate_limited, "logins"))
        rules = settings.ssl_principal_mapping_rules
        openers: Mapping[AuthenticatorKind, Callable[[], Authenticator]] = {
            AuthenticatorKind.BEARER: lambda: self._bearer(metrics, stack),
            AuthenticatorKind.CERTIFICATE: lambda: ClientCertificates(PrincipalMapping(rules)),
        }
        kinds = settings.enabled_authenticators
        self._of_service = {kind: openers[kind]() for kind in kinds if kind in openers}

    def protect(self, privileged: AbstractSet[str]) -> None:
        """Let no token name these, unless the settings allow it."""
        self._privileged.clear()
        self._privileged |= protected(privileged, self._settings)

    def of_cluster(
        self, login: KafkaLogin | None, open_sessions: OpenSessions, stack: AsyncExitStack
    ) -> Sequence[Authenticator]:
        """Return the enabled authenticators of a cluster; the stack closes those of its own.

        Args:
            login: How callers log in at its brokers; null: they do not.
            open_sessions: Makes the sessions of such logins.
            stack: Closes the sessions.
        """

        def basic() -> Basic:
            if login is None:
                message = "QUOTAS_AUTHENTICATORS: basic is not configured."
                raise SettingsError(message)
            sessions = open_sessions(login)
            stack.push_async_callback(sessions.close)
            return Basic(sessions, self._attempts)

        kinds = self._settings.enabled_authenticators
        return [self._of_service.get(kind) or basic() for kind in kinds]

    def _bearer(self, metrics: Metrics, stack: AsyncExitStack) -> Bearer:
        settings = self._settings
        tokens, rules = bearer_tokens(settings), token_rules(settings, self._privileged)
        if rules is None:
            return Bearer(tokens)
        client = httpx.AsyncClient(verify=oidc_authorities(settings), trust_env=False)
        keys = SigningKeys(rules.issuer, settings.oidc_jwks_url, client, metrics.count_key_fetch)
        metrics.watch_key_age(keys.age_s)
        stack.push_async_callback(keys.close)
        sign_in = SignIn(rules.issuer, page_client(settings), client)
        stack.push_async_callback(sign_in.close)
        return Bearer(tokens, JsonWebTokens(rules, keys), sign_in)


def protected(privileged: AbstractSet[str], settings: Settings) -> AbstractSet[str]:
    """Return the super users and auditors that no token without a prefix may name."""
    return privileged - settings.oidc_privileged_principals


def bearer_tokens(settings: Settings) -> BearerTokens | None:
    """Return the tokens of the file, or null where there is none."""
    if settings.tokens_file is None:
        return None
    try:
        return BearerTokens(settings.tokens_file)
    except TokensFileError as error:
        message = f"QUOTAS_TOKENS_FILE: {error}"
        raise SettingsError(message) from None


def token_rules(settings: Settings, privileged: AbstractSet[str]) -> TokenRules | None:
    """Return what the signed tokens that are accepted must say, or null where none are.

    Without a prefix they may name nobody that is ``privileged``.
    """
    if settings.oidc_issuer is None:
        return None
    return TokenRules(
        settings.oidc_issuer,
        settings.oidc_audience or "",
        frozenset(settings.oidc_algorithms),
        settings.oidc_principal_claim,
        settings.oidc_principal_prefix,
        frozenset() if settings.oidc_principal_prefix else privileged,
    )


def page_client(settings: Settings) -> PageClient:
    """Return what the page is at the identity provider."""
    audience = settings.oidc_audience or ""
    client_id = settings.oidc_page_client_id or audience
    token: Literal["id_token", "access_token"] = (
        "id_token" if client_id == audience else "access_token"
    )
    return PageClient(client_id, settings.oidc_page_scope, token)


def oidc_authorities(settings: Settings) -> ssl.SSLContext:
    """Return which authorities the identity provider's own certificate must come from."""
    try:
        return ssl.create_default_context(cafile=settings.oidc_ca_file)
    except OSError as error:
        raise unusable_file("QUOTAS_OIDC_CA_FILE", error) from None


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return what speaks TLS with callers, or null where nothing does.

    A client certificate is asked for where one could be a credential, and is not demanded, so that
    other credentials are good on the same port. TLS 1.2 is the oldest that is spoken.
    """
    if settings.tls_cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    password = partial(key_password, reveal(settings.tls_key_password))
    try:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"QUOTAS_TLS_CERT_FILE, QUOTAS_TLS_KEY_FILE: they cannot be used: {reason}."
        raise SettingsError(message) from None
    if settings.tls_client_ca_file is not None:
        try:
            context.load_verify_locations(settings.tls_client_ca_file)
        except OSError as error:
            raise unusable_file("QUOTAS_TLS_CLIENT_CA_FILE", error) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


_LOGINS_AT_ONCE: Final = 16
"""A crowd of unknown callers takes no more of the brokers than this."""


class CallerSession:
    """One caller's connections, and what acts through them."""

    def __init__(
        self, brokers: Brokers, admin: KafkaClientQuotaAdmin, principal: str, logins: "CallerLogins"
    ) -> None:
        self._brokers = brokers
        self._admin = admin
        self._rights = KafkaCallerRights(brokers, admin)
        self._tasks = SessionTasks(logins.tasks)
        as_caller = CallerQuotaAdmin(admin, self._rights, principal)
        everything = partial(
            as_caller.describe_client_quotas, ALL_ENTITIES, timeout_s=brokers.patience.image_s
        )
        self._everything = Cache(everything, keeps_answer=False)
        for_record = CallerQuotaAdmin(admin, self._rights, principal, stand_in=logins.own_account)
        self.actor = partial(
            Actor,
            authorizer=BrokerAuthorizer(self._rights, logins.authorizer),
            admin=as_caller,
            reader=as_caller,
            describe_now=self._describe_now,
            barrier=logins.barrier(for_record),
            tasks=self._tasks,
            is_logged_in=True,
        )

    @property
    def is_spoilt(self) -> bool:
        """Whether the brokers have refused the password since."""
        return self._brokers.login_was_refused

    async def close(self, *, at_once: bool) -> None:
        """Drop the connections, when the last alteration has ended or at once."""
        try:
            if not at_once:
                await self._tasks.quiet()
        finally:
            await self._everything.close()
            await self._rights.close()
            await self._admin.close()

    async def _describe_now(self) -> Described:
        described, _ = await self._everything.get(0)
        return described


@dataclass(frozen=True, slots=True)
class CallerLogins:
    """Logs callers in at the brokers, and shares with them what asks no broker for a caller."""

    own_account: KafkaClientQuotaAdmin
    tasks: AlterationTasks
    barrier: Callable[[QuotaReader], Barrier]
    authorizer: ClusterAuthorizer
    metrics: BrokerMetrics
    patience: Patience

    def sessions(self, login: KafkaLogin) -> Sessions:
        """Return the sessions of callers who log in like this, of which there are none yet."""
        context = ssl_context(login("user", "password"))
        pending = asyncio.Semaphore(_LOGINS_AT_ONCE)

        async def open_session(user: str, password: str) -> CallerSession:
            brokers = Brokers(
                login(user, password),
                self.metrics,
                context=context,
                one_login=True,
                patience=self.patience,
            )
            try:
                await self._log_in(brokers, pending)
                admin = KafkaClientQuotaAdmin(brokers, keeps_everything=False)
                return CallerSession(brokers, admin, f"User:{user}", self)
            except BaseException:
                await brokers.close()
                raise

        return Sessions(open_session)

    async def _log_in(self, brokers: Brokers, pending: asyncio.Semaphore) -> None:
        """Log in.

        Raises:
            LoginFailedError: The brokers do not accept the user with this password.
            NotSentError: They cannot be reached in time, or are of another cluster.
        """
        within_s = brokers.patience.broker_answer_s
        deadline = asyncio.get_running_loop().time() + within_s
        try:
            async with asyncio.timeout(within_s):
                try:
                    async with pending:
                        view = await brokers.view(deadline)
                except LoginRefusedError:
                    detail = "The brokers do not accept this user with this password."
                    raise LoginFailedError(detail) from None
                ours = await self.own_account.cluster_id()
        except TimeoutError:
            raise NotSentError("The login took too long.", code="cluster-unreachable") from None
        if view.cluster_id != ours:
            detail = "QUOTAS_BASIC_BOOTSTRAP_SERVERS leads to another cluster."
            raise NotSentError(detail, code="cluster-unreachable")
