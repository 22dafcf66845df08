"""From an address to a connection that is ready for use: TCP, TLS, ApiVersions, SASL.

Nothing of a caller's request is sent here, so whatever goes wrong is a ``NotSentError``.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kafka import __version__
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from app.domain.errors import NotSentError
from app.kafka.configuration import CLIENT_ID, KafkaSettings
from app.kafka.connection import UNREACHABLE, AnswerLostError, BrokerConnection, Loss
from app.kafka.errors import code_name
from app.kafka.questions import ask
from app.kafka.sasl import SaslError, SaslExchange, SaslRefusedError, sasl_exchange
from app.service.dependency_metrics import DependencyMetrics

Address = tuple[str, int]
"""Host and port."""

_API_VERSIONS_VERSION: Final = 3
_SASL_HANDSHAKE_VERSION: Final = 1
_NEWEST_SASL_AUTHENTICATE: Final = 2
_UNSUPPORTED_VERSION: Final = 35
_SASL_AUTHENTICATION_FAILED: Final = 58


class LoginRefusedError(NotSentError):
    """The broker does not accept the user with this password."""


async def connect(
    address: Address,
    settings: KafkaSettings,
    context: ssl.SSLContext | None,
    metrics: DependencyMetrics,
) -> BrokerConnection:
    """Open a connection that counts its requests; the caller sets the deadline by cancelling.

    Raises:
        LoginRefusedError: The broker does not accept the user with this password.
        NotSentError: The broker cannot be reached, or does not speak with us.
    """
    host, port = address
    loop = asyncio.get_running_loop()
    try:
        transport, connection = await loop.create_connection(
            partial(BrokerConnection, metrics), host, port, ssl=context
        )
    except OSError as error:
        raise _unreachable(address, str(error) or type(error).__name__) from error
    try:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await _agree_on_versions(connection)
        if settings.protocol.uses_sasl:
            await _authenticate(connection, settings)
    except SaslRefusedError as error:
        connection.abort()
        raise LoginRefusedError(_cannot_reach(address, str(error)), code=UNREACHABLE) from error
    except (AnswerLostError, SaslError) as error:
        connection.abort()
        raise _unreachable(address, str(error)) from error
    except BaseException:
        connection.abort()
        raise
    return connection


async def _agree_on_versions(connection: BrokerConnection) -> None:
    """Learn what the broker speaks; brokers before 2.4 want version 0. Source: KIP-511."""
    answer = await _api_versions(connection, _API_VERSIONS_VERSION)
    if answer.error_code == _UNSUPPORTED_VERSION:
        answer = await _api_versions(connection, 0)
    if answer.error_code != 0:
        detail = _refused(connection, "ApiVersions", answer.error_code, None)
        raise AnswerLostError(Loss.UNREADABLE, detail)
    connection.api_versions = {
        key.api_key: (key.min_version, key.max_version) for key in answer.api_keys
    }
    connection.metadata_version = _metadata_version(answer)


async def _api_versions(connection: BrokerConnection, version: int) -> Any:
    request = ApiVersionsRequest(
        client_software_name=CLIENT_ID,
        client_software_version=f"kafka-python-{__version__}",
        version=version,
    )
    return await ask(connection, request, version, ApiVersionsResponse)


def _metadata_version(answer: Any) -> int | None:
    features: Mapping[str, int] = {
        feature.name: feature.max_version_level
        for feature in getattr(answer, "finalized_features", None) or ()
    }
    return features.get("metadata.version")


async def _authenticate(connection: BrokerConnection, settings: KafkaSettings) -> None:
    """Prove who we are. Source: KIP-43, KIP-152, KIP-368."""
    request = SaslHandshakeRequest(mechanism=settings.sasl_mechanism)
    answer = await ask(connection, request, _SASL_HANDSHAKE_VERSION, SaslHandshakeResponse)
    if answer.error_code != 0:
        offered = ", ".join(answer.mechanisms or ())
        raise SaslError(_refused(connection, "SASL", answer.error_code, f"It offers {offered}."))
    exchange = sasl_exchange(settings)
    to_send = await asyncio.to_thread(_next_message, exchange, None)
    while to_send is not None:
        received = await _sasl_round(connection, to_send)
        to_send = await asyncio.to_thread(_next_message, exchange, received)


def _next_message(exchange: SaslExchange, received: bytes | None) -> bytes | None:
    try:
        return next(exchange) if received is None else exchange.send(received)
    except StopIteration:
        return None


async def _sasl_round(connection: BrokerConnection, to_send: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=to_send)
    newest = connection.api_versions.get(request.API_KEY, (0, 0))[1]
    version = min(newest, _NEWEST_SASL_AUTHENTICATE)
    answer = await ask(connection, request, version, SaslAuthenticateResponse)
    if answer.error_code != 0:
        refusal = _refused(connection, "SASL", answer.error_code, answer.error_message)
        is_login = answer.error_code == _SASL_AUTHENTICATION_FAILED
        raise SaslRefusedError(refusal) if is_login else SaslError(refusal)
    if version >= 1 and answer.session_lifetime_ms > 0:
        lifetime_s = answer.session_lifetime_ms / 1000
        connection.expires_at = asyncio.get_running_loop().time() + lifetime_s
    return bytes(answer.auth_bytes)


def _refused(connection: BrokerConnection, what: str, code: int, text: str | None) -> str:
    """Count a refusal; return it as a sentence."""
    name = code_name(code)
    connection.note_error(name)
    return f"{what} was refused with {name}. {text or ''}".strip()


def _unreachable(address: Address, why: str) -> NotSentError:
    return NotSentError(_cannot_reach(address, why), code=UNREACHABLE)


def _cannot_reach(address: Address, why: str) -> str:
    host, port = address
    return f"The broker {host}:{port} cannot be reached: {why}"
