"""Secrets that differ from everything else, and the search for them."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.testkit.kafka import PLAIN_USERS

KAFKA_PASSWORD = PLAIN_USERS["admin"]
DATABASE_PASSWORD = "canary-database-5f1c"
OWNER_PASSWORD = "canary-owner-77aa"
TOKENS = {name: f"canary-token-{name}-91d0" for name in ("alice", "bob", "mallory", "auditor")}
UNKNOWN_TOKEN = "canary-unknown-token-3b2e"
BASIC_PASSWORD = "canary-basic-c8d4"
WRONG_PASSWORD = "canary-wrong-kafka-0e6b"
COOKIE = "canary-cookie-22f9"
SIGNED = ".".join(
    base64.urlsafe_b64encode(section.encode()).rstrip(b"=").decode()
    for section in (
        '{"alg":"RS256","kid":"k1"}',
        '{"sub":"canary-subject","iss":"http://127.0.0.1:1","aud":"quotas","exp":9999999999}',
        "canary-signature-6a71-canary-signature",
    )
)

SECRETS = {
    KAFKA_PASSWORD,
    DATABASE_PASSWORD,
    OWNER_PASSWORD,
    UNKNOWN_TOKEN,
    BASIC_PASSWORD,
    WRONG_PASSWORD,
    COOKIE,
    SIGNED,
    SIGNED.rpartition(".")[2],
    *TOKENS.values(),
}


def spellings(secret: str) -> set[str]:
    """Return a secret as it may be written: plain, quoted, and within a Basic credential."""
    basic = {base64.b64encode(f"{user}:{secret}".encode()).decode() for user in ("alice", "admin")}
    return {secret, quote(secret, safe=""), secret.encode().hex(), *basic}


NEEDLES = sorted({needle for secret in SECRETS for needle in spellings(secret)})


@dataclass
class Seen:
    """All that came out, by where."""

    texts: dict[str, str] = field(default_factory=dict)

    def add(self, source: str, text: str) -> None:
        self.texts[source] = self.texts.get(source, "") + text

    def answer(self, answer: httpx.Response) -> httpx.Response:
        self.add("answers", f"{answer.headers.multi_items()}\n{answer.text}\n")
        return answer

    def found(self) -> list[tuple[str, str]]:
        return [
            (source, needle)
            for source, text in self.texts.items()
            for needle in NEEDLES
            if needle in text
        ]


def as_canary(url: str) -> str:
    """Return the URL for a role with the canary password."""
    scheme, _, rest = url.partition("://")
    _, _, address = rest.partition("@")
    return f"{scheme}://quotas_canary:{DATABASE_PASSWORD}@{address}"


def write_canary_tokens(folder: Path) -> Path:
    path = folder / "canaries.json"
    entries = [
        {
            "principal": f"User:{name}",
            "token_sha256": hashlib.sha256(token.encode()).hexdigest(),
            "expires_at": "2999-01-01T00:00:00Z",
        }
        for name, token in TOKENS.items()
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path
