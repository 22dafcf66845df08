"""The ways of saying who calls, as the settings open them."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from app.http.authentication.bearer import Bearer
from app.http.authentication.methods import Method, Methods
from app.http.authentication.shown_certificates import DirectCertificate, ProxyCertificate
from app.http.metrics import HttpMetrics
from app.meanings.authenticators import Way, ways
from app.meanings.certificates import client_certificates, proxied_certificates
from app.meanings.tokens import bearer_tokens, identity_provider
from app.settings import Settings

Opened = Callable[[AsyncExitStack], Method]
"""Makes a method, and pushes what closes it."""


class Authenticators:
    """What the settings say of them, checked; ``open`` makes them.

    Raises:
        SettingsError: A setting cannot be used.
    """

    def __init__(self, settings: Settings, metrics: HttpMetrics) -> None:
        self._openers = [_PREPARATIONS[way](settings, metrics) for way in ways(settings)]

    def open(self, stack: AsyncExitStack) -> Methods:
        """Return what asks them; the stack closes them."""
        return Methods([opener(stack) for opener in self._openers])


def _bearer(settings: Settings, metrics: HttpMetrics) -> Opened:
    tokens, provider = bearer_tokens(settings), identity_provider(settings)

    def opened(stack: AsyncExitStack) -> Method:
        if provider is None:
            return Bearer(tokens)
        keys = provider.keys(metrics.count_key_fetch)
        metrics.watch_key_age(keys.age_s)
        stack.push_async_callback(keys.close)
        return Bearer(tokens, provider.tokens(keys))

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
}
"""Reads the settings of a way, and returns what opens it."""
