"""From an address to a connection that is ready for use: TCP, TLS, ApiVersions, SASL.

Nothing of a caller's request is sent here, so whatever goes wrong is a ``NotSentError``.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Generator
from functools import partial
from typing import Final

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from app.domain.errors import NotSentError
from app.kafka.config import Address, KafkaSettings, SaslMechanism
from app.kafka.connection import BrokerConnection, api_versions, ask
from app.kafka.errors import UNREACHABLE, AnswerLostError, code_name, unreachable
from app.metrics import BrokerMetrics

SaslExchange = Generator[bytes, bytes, None]
"""Yields what to send, takes what the broker answers, returns when the broker is trusted."""

_HASHES = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_FEWEST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000


class SaslError(Exception):
    """The broker's side of the exchange is wrong; the text holds no secret."""


class SaslRefusedError(SaslError):
    """The broker does not accept the user with this password."""


def sasl_exchange(settings: KafkaSettings) -> SaslExchange:
    """Start the exchange of the configured mechanism.

    Raises:
        SaslError: From the generator, when the broker's answer is not to be trusted.
    """
    username, password = settings.sasl_username or "", settings.sasl_password or ""
    if settings.sasl_mechanism in _HASHES:
        return _scram(username, password, _HASHES[settings.sasl_mechanism])
    return _plain(username, password)


def _plain(username: str, password: str) -> SaslExchange:
    """Send everything at once. Source: RFC 4616."""
    yield f"\0{username}\0{password}".encode()


def _scram(username: str, password: str, hash_name: str) -> SaslExchange:
    """Prove the password and check that the broker knows it too. Source: RFC 5802."""
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    nonce = secrets.token_urlsafe(24)
    first_bare = f"n={escaped},r={nonce}"
    server_first = yield f"n,,{first_bare}".encode()

    salt, iterations, joint_nonce = _server_first(server_first, nonce)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    final_bare = f"c=biws,r={joint_nonce}"
    signed = b",".join((first_bare.encode(), server_first, final_bare.encode()))
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()

    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = hmac.digest(server_key, signed, hash_name)
    if not hmac.compare_digest(_decode(_attributes(server_final).get("v")), expected):
        message = "The broker could not prove that it knows the password."
        raise SaslError(message)


def _server_first(raw: bytes, nonce: str) -> tuple[bytes, int, str]:
    attributes = _attributes(raw)
    joint_nonce = attributes.get("r", "")
    iterations = attributes.get("i", "")[:8]
    if not joint_nonce.startswith(nonce) or joint_nonce == nonce:
        message = "The broker did not answer to this exchange."
        raise SaslError(message)
    if not iterations.isdecimal() or not (
        _FEWEST_ITERATIONS <= int(iterations) <= _MOST_ITERATIONS
    ):
        message = f"The broker asks for {iterations!r} SCRAM iterations."
        raise SaslError(message)
    return _decode(attributes.get("s")), int(iterations), joint_nonce


def _attributes(raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = "The broker's SCRAM message is not UTF-8."
        raise SaslError(message) from error
    return {item[:1]: item[2:] for item in text.split(",") if item[1:2] == "="}


def _decode(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error as error:
        message = "The broker's SCRAM message is not base64."
        raise SaslError(message) from error


_SASL_HANDSHAKE_VERSION: Final = 1
_NEWEST_SASL_AUTHENTICATE: Final = 2
_SASL_AUTHENTICATION_FAILED: Final = 58


class LoginRefusedError(NotSentError):
    """The broker does not accept the user with this password."""


async def connect(
    address: Address,
    settings: KafkaSettings,
    context: ssl.SSLContext | None,
    metrics: BrokerMetrics,
) -> BrokerConnection:
    """Open a connection that counts its requests; the caller sets the deadline by cancelling.

    Raises:
        LoginRefusedError: The broker does not accept the user with this password.
        NotSentError: The broker cannot be reached, or does not speak with us.
    """
    host, port = address
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(partial(BrokerConnection, metrics), host, port)
    except OSError as error:
        raise unreachable(_cannot_reach(address, error)) from error
    try:
        if context is not None:
            await connection.encrypt(context, host)
        await _agree_on_versions(connection)
        if settings.security_protocol.uses_sasl:
            await _authenticate(connection, settings)
    except SaslRefusedError as error:
        connection.abort()
        raise LoginRefusedError(_cannot_reach(address, error), code=UNREACHABLE) from error
    except (AnswerLostError, SaslError, OSError) as error:
        connection.abort()
        raise unreachable(_cannot_reach(address, error)) from error
    except BaseException:
        connection.abort()
        raise
    return connection


async def _agree_on_versions(connection: BrokerConnection) -> None:
    """Learn what the broker speaks."""
    answer = await api_versions(connection)
    connection.api_versions = {
        key.api_key: (key.min_version, key.max_version) for key in answer.api_keys
    }
    for feature in getattr(answer, "finalized_features", None) or ():
        if feature.name == "metadata.version":
            connection.metadata_version = feature.max_version_level


async def _authenticate(connection: BrokerConnection, settings: KafkaSettings) -> None:
    """Prove who we are. Source: KIP-43, KIP-152, KIP-368."""
    request = SaslHandshakeRequest(mechanism=settings.sasl_mechanism)
    answer = await ask(connection, request, SaslHandshakeResponse, version=_SASL_HANDSHAKE_VERSION)
    if answer.error_code != 0:
        offered = ", ".join(answer.mechanisms or ())
        raise SaslError(_refusal(answer.error_code, f"It offers {offered}."))
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
    answer = await ask(connection, request, SaslAuthenticateResponse, version=version)
    if answer.error_code != 0:
        refusal = _refusal(answer.error_code, answer.error_message)
        is_login = answer.error_code == _SASL_AUTHENTICATION_FAILED
        raise SaslRefusedError(refusal) if is_login else SaslError(refusal)
    if version >= 1 and answer.session_lifetime_ms > 0:
        lifetime_s = answer.session_lifetime_ms / 1000
        connection.expires_at = asyncio.get_running_loop().time() + lifetime_s
    return bytes(answer.auth_bytes)


def _refusal(code: int, text: str | None) -> str:
    return f"SASL was refused with {code_name(code)}. {text or ''}".strip()


def _cannot_reach(address: Address, error: Exception) -> str:
    host, port = address
    why = str(error) or type(error).__name__
    return f"The broker {host}:{port} cannot be reached: {why}"
