"""The client's side of SASL PLAIN and SCRAM."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator

from app.kafka.configuration import KafkaSettings, SaslMechanism

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
    mechanism = SaslMechanism(settings.sasl_mechanism or "")
    if mechanism is SaslMechanism.PLAIN:
        return _plain(username, password)
    return _scram(username, password, _HASHES[mechanism])


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
    if not hmac.compare_digest(_decoded(_attributes(server_final).get("v")), expected):
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
    return _decoded(attributes.get("s")), int(iterations), joint_nonce


def _attributes(raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        message = "The broker's SCRAM message is not UTF-8."
        raise SaslError(message) from error
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error as error:
        message = "The broker's SCRAM message is not base64."
        raise SaslError(message) from error
