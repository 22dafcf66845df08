"""The ways of saying who calls, as the settings open them."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from app.caller_sessions import OpenSessions
from app.http.authentication.basic import Basic
from app.http.authentication.bearer import Bearer
from app.http.authentication.login_attempts import LoginAttempts
from app.http.authentication.methods import Method, Methods
from app.http.authentication.shown_certificates import DirectCertificate, ProxyCertificate
from app.http.metrics import HttpMetrics
from app.meanings.authenticators import Way, ways
from app.meanings.certificates import client_certificates, proxied_certificates
from app.meanings.pass_through import pass_through
from app.meanings.tokens import bearer_tokens, identity_provider
from app.settings import Settings

Opened = Callable[[AsyncExitStack, OpenSessions], Method]
"""Makes a method, and pushes what closes it; some open sessions of the brokers."""


class Authenticators:
    """What the settings say of them, checked; ``open`` makes them.

    Raises:
        SettingsError: A setting cannot be used.
    """

    def __init__(self, settings: Settings, metrics: HttpMetrics) -> None:
        self._openers = [_PREPARATIONS[way](settings, metrics) for way in ways(settings)]

    def open(self, stack: AsyncExitStack, sessions: OpenSessions) -> Methods:
        """Return what asks them; the stack closes them."""
        return Methods([opener(stack, sessions) for opener in self._openers])


def _bearer(settings: Settings, metrics: HttpMetrics) -> Opened:
    tokens, provider = bearer_tokens(settings), identity_provider(settings)

    def opened(stack: AsyncExitStack, _: OpenSessions) -> Method:
        if provider is None:
            return Bearer(tokens)
        keys = provider.keys(metrics.count_key_fetch)
        metrics.watch_key_age(keys.age_s)
        stack.push_async_callback(keys.close)
        return Bearer(tokens, provider.tokens(keys))

    return opened


def _basic(settings: Settings, metrics: HttpMetrics) -> Opened:
    way = pass_through(settings)

    def opened(stack: AsyncExitStack, open_sessions: OpenSessions) -> Method:
        if way is None:
            message = "Basic is not configured"
            raise ValueError(message)
        sessions = open_sessions(way)
        stack.push_async_callback(sessions.close)
        return Basic(sessions, LoginAttempts(partial(metrics.count_rate_limited, "logins")))

    return opened


def _certificate(settings: Settings, _metrics: HttpMetrics) -> Opened:
    method = DirectCertificate(client_certificates(settings))
    return lambda *_: method


def _proxy_certificate(settings: Settings, _metrics: HttpMetrics) -> Opened:
    method = ProxyCertificate(settings.client_cert_header, proxied_certificates(settings))
    return lambda *_: method


_PREPARATIONS: Final[Mapping[Way, Callable[[Settings, HttpMetrics], Opened]]] = {
    Way.BEARER: _bearer,
    Way.CERTIFICATE: _certificate,
    Way.PROXY_CERTIFICATE: _proxy_certificate,
    Way.BASIC: _basic,
}
"""Reads the settings of a way, and returns what opens it."""
