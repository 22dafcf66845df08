"""An identity provider in memory: keys that sign, and the set that it publishes."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from app.http.authentication.oidc import ALGORITHMS, JsonWebTokens, SigningKeys, TokenRules

ISSUER: Final = "https://login.example.org/realm"
JWKS_URL: Final = f"{ISSUER}/keys"
AUDIENCE: Final = "kafka-quotas"
NOW: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)

RSA_KEY: Final = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY: Final = rsa.generate_private_key(65537, 2048)
SHORT_RSA_KEY: Final = rsa.generate_private_key(65537, 1024)  # noqa: S505 - shall be refused
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())
EC_384_KEY: Final = ec.generate_private_key(ec.SECP384R1())
ED_KEY: Final = ed25519.Ed25519PrivateKey.generate()


def published(key: Any, key_id: str, algorithm: str, **more: Any) -> dict[str, Any]:
    """Return the public half of a key as the provider lists it."""
    kind = {"R": "RSA", "P": "RSA", "E": "EC"}[algorithm[0]] if algorithm != "EdDSA" else "OKP"
    maker = {
        "RSA": jwt.algorithms.RSAAlgorithm,
        "EC": jwt.algorithms.ECAlgorithm,
        "OKP": jwt.algorithms.OKPAlgorithm,
    }[kind]
    document = maker.to_jwk(key.public_key(), as_dict=True)
    return {**document, "kid": key_id, "use": "sig", **more}


KEYS: Final[Mapping[str, Any]] = {
    "keys": [
        published(RSA_KEY, "rsa", "RS256"),
        published(RSA_KEY, "rsa-for-rs256", "RS256", alg="RS256"),
        published(RSA_KEY, "rsa-to-encrypt", "RS256", use="enc"),
        published(SHORT_RSA_KEY, "short", "RS256"),
        published(EC_KEY, "ec", "ES256"),
        published(EC_384_KEY, "ec-384", "ES384"),
        published(ED_KEY, "ed", "EdDSA"),
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"},
        {"kty": "RSA", "kid": "broken", "n": "AQAB"},
        "no key",
    ]
}


def claims(**changed: Any) -> dict[str, Any]:
    """Return what a good token says, with changes; a claim of ``...`` is left out."""
    now = int(NOW.timestamp())
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": now + 600,
        "iat": now - 60,
        "nbf": now - 60,
    }
    return {name: value for name, value in {**good, **changed}.items() if value is not ...}


def signed(
    payload: Mapping[str, Any] | None = None,
    *,
    key: Any = RSA_KEY,
    algorithm: str = "RS256",
    **header: Any,
) -> str:
    """Return a token of the library that providers use."""
    headers = {"kid": "rsa", **header}
    present = {name: value for name, value in headers.items() if value is not ...}
    return jwt.PyJWS().encode(
        json.dumps(claims() if payload is None else payload).encode(), key, algorithm, present
    )


def raw(header: str | bytes, payload: str | bytes, signature: bytes = b"x" * 256) -> str:
    """Return a token of any sections."""
    segments = (header, payload, signature)
    encoded = (item.encode() if isinstance(item, str) else item for item in segments)
    return ".".join(base64.urlsafe_b64encode(item).rstrip(b"=").decode() for item in encoded)


def signed_text(header: str, payload: str, key: Any = RSA_KEY) -> str:
    """Return a rightly signed token (RS256) of any text."""
    start = raw(header, payload).rpartition(".")[0]
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(
        start.encode(), key
    )
    return f"{start}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@dataclass
class Provider:
    """Answers from memory.

    Attributes:
        answers: By URL; what is not there is 404.
        asked: The URLs that were asked for.
        seconds: The time of the clock that keys age by.
        fetches: The results that were counted.
    """

    answers: dict[str, httpx.Response | Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    seconds: float = 1000.0
    fetches: list[str] = field(default_factory=list)

    def publish(self, keys: Any, url: str = JWKS_URL) -> None:
        """Answer the key set."""
        self.answers[url] = httpx.Response(200, json=keys)

    def keys(self, jwks_url: str | None = JWKS_URL) -> SigningKeys:
        """Return keys that are asked for here."""
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        return SigningKeys(ISSUER, jwks_url, client, self.fetches.append, lambda: self.seconds)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        answer = self.answers.get(str(request.url), httpx.Response(404))
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def tokens_of(provider: Provider, **changed: Any) -> JsonWebTokens:
    """Return the judge of that provider's tokens."""
    rules = {"issuer": ISSUER, "audience": AUDIENCE, "algorithms": ALGORITHMS, **changed}
    return JsonWebTokens(TokenRules(**rules), provider.keys(), lambda: NOW)
