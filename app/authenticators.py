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
from app.http.workers.board import Board
from app.http.workers.login_attempts import SharedLoginAttempts
from app.meanings.authenticators import Way, ways
from app.meanings.certificates import client_certificates, proxied_certificates
from app.meanings.pass_through import pass_through
from app.meanings.tokens import bearer_tokens, identity_provider
from app.settings import Settings

Opened = Callable[[AsyncExitStack, OpenSessions, Board | None], Method]
"""Makes a method, and pushes what closes it; some open sessions of the brokers, and some count on
the board of all workers."""


class Authenticators:
    """What the settings say of them, checked; ``open`` makes them.

    Raises:
        SettingsError: A setting cannot be used.
    """

    def __init__(self, settings: Settings, metrics: HttpMetrics) -> None:
        self._openers = [_PREPARATIONS[way](settings, metrics) for way in ways(settings)]

    def open(
        self, stack: AsyncExitStack, sessions: OpenSessions, board: Board | None = None
    ) -> Methods:
        """Return what asks them; the stack closes them.

        Args:
            stack: Closes them.
            sessions: Opens sessions of the brokers.
            board: Where workers count together; null for a process that serves alone.
        """
        return Methods([opener(stack, sessions, board) for opener in self._openers])


def _bearer(settings: Settings, metrics: HttpMetrics) -> Opened:
    tokens, provider = bearer_tokens(settings), identity_provider(settings)

    def opened(stack: AsyncExitStack, _: OpenSessions, _board: Board | None) -> Method:
        if provider is None:
            return Bearer(tokens)
        keys = provider.keys(metrics.count_key_fetch)
        metrics.watch_key_age(keys.age_s)
        stack.push_async_callback(keys.close)
        return Bearer(tokens, provider.tokens(keys))

    return opened


def _basic(settings: Settings, metrics: HttpMetrics) -> Opened:
    way = pass_through(settings)

    def opened(stack: AsyncExitStack, open_sessions: OpenSessions, board: Board | None) -> Method:
        if way is None:
            message = "Basic is not configured"
            raise ValueError(message)
        sessions = open_sessions(way)
        stack.push_async_callback(sessions.close)
        count = partial(metrics.count_rate_limited, "logins")
        if board is None:
            return Basic(sessions, LoginAttempts(count))
        return Basic(sessions, SharedLoginAttempts(board, count))

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
