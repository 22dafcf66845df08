"""The identity provider's keys: when they are asked for, and what is done without an answer."""

from typing import Any

import httpx
import pytest

from app.domain.errors import NotSentError
from app.http.authentication.signing_keys import KeySource, is_confidential
from tests.unit.http.authentication.tokens import (
    EC_KEY,
    ISSUER,
    JWKS_URL,
    OTHER_RSA_KEY,
    RSA_KEY,
    Provider,
    published,
)

FIRST = {"keys": [published(RSA_KEY, "first", "RS256")]}
BOTH = {"keys": [*FIRST["keys"], published(EC_KEY, "second", "ES256")]}
DISCOVERY = f"{ISSUER}/.well-known/openid-configuration"


@pytest.fixture
def provider() -> Provider:
    provider = Provider()
    provider.publish(FIRST)
    return provider


async def test_keys_are_asked_for_once_and_kept(provider: Provider):
    keys = provider.keys()
    for _ in range(3):
        assert await keys.key("first") is not None
    assert provider.asked == [JWKS_URL]
    assert (keys.age_s(), provider.fetches) == (0.0, ["ok"])


async def test_old_keys_are_asked_for_again(provider: Provider):
    keys = provider.keys()
    await keys.key("first")
    provider.seconds += 301
    assert await keys.key("first") is not None
    assert len(provider.asked) == 2


async def test_a_token_that_names_no_key_means_the_only_one(provider: Provider):
    for only in (FIRST, {"keys": [{**FIRST["keys"][0], "kid": None}]}):
        provider.publish(only)
        assert await provider.keys().key(None) is not None
    provider.publish(BOTH)
    assert await provider.keys().key(None) is None


async def test_a_new_key_is_found_when_it_is_first_used(provider: Provider):
    keys = provider.keys()
    await keys.key("first")
    provider.publish(BOTH)
    provider.seconds += 30
    assert await keys.key("second") is not None


async def test_a_key_that_was_withdrawn_signs_no_more(provider: Provider):
    keys = provider.keys()
    await keys.key("first")
    provider.publish({"keys": [published(OTHER_RSA_KEY, "other", "RS256")]})
    provider.seconds += 301
    assert await keys.key("first") is None


async def test_unknown_keys_make_at_most_one_question_in_half_a_minute(provider: Provider):
    keys = provider.keys()
    for number in range(10_000):
        if number == 5_000:
            provider.seconds += 31
        assert await keys.key(f"unknown-{number}") is None
    assert len(provider.asked) == 2


NO_ANSWERS: dict[str, Any] = {
    "down": httpx.ConnectError("refused"),
    "slow": httpx.ReadTimeout("slow"),
    "an error": httpx.Response(500),
    "elsewhere": httpx.Response(302, headers={"Location": "https://evil.example.org/keys"}),
    "huge": httpx.Response(200, content=b"[" + b" " * (1024 * 1024)),
    "no JSON": httpx.Response(200, text="<html>"),
    "no object": httpx.Response(200, json=[]),
    "no list": httpx.Response(200, json={"keys": {}}),
    "no keys": httpx.Response(200, json={"keys": []}),
    "secrets alone": httpx.Response(200, json={"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]}),
}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_without_an_answer_the_keys_are_good_for_an_hour(provider: Provider, answer: Any):
    keys = provider.keys()
    await keys.key("first")
    provider.answers[JWKS_URL] = answer
    provider.seconds += 3599
    assert await keys.key("first") is not None
    provider.seconds += 2
    with pytest.raises(NotSentError) as refusal:
        await keys.key("first")
    assert refusal.value.code == "identity-provider-unavailable"
    assert set(provider.asked) == {JWKS_URL}
    assert provider.fetches[0] == "ok"
    assert set(provider.fetches[1:]) == {"failed"}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_without_any_answer_nobody_can_be_judged(answer: Any):
    provider = Provider({JWKS_URL: answer})
    keys = provider.keys()
    with pytest.raises(NotSentError):
        await keys.key("first")
    assert keys.age_s() is None
    provider.publish(FIRST)
    provider.seconds += 30
    assert await keys.key("first") is not None


async def test_the_keys_are_found_where_the_issuer_says():
    provider = Provider()
    provider.publish({"issuer": ISSUER, "jwks_uri": JWKS_URL}, DISCOVERY)
    provider.publish(FIRST)
    assert await provider.keys(KeySource(ISSUER)).key("first") is not None
    assert provider.asked == [DISCOVERY, JWKS_URL]


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example.org", "jwks_uri": JWKS_URL},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": ["https://login.example.org/keys"]},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
    ],
)
async def test_a_discovery_document_that_cannot_be_trusted_is_not(document: dict[str, Any]):
    provider = Provider()
    provider.publish(document, DISCOVERY)
    with pytest.raises(NotSentError):
        await provider.keys(KeySource(ISSUER)).key("first")
    assert provider.asked == [DISCOVERY]


@pytest.mark.parametrize(
    ("url", "confidential"),
    [
        ("https://login.example.org", True),
        ("http://127.0.0.1:9400", True),
        ("http://localhost/realm", True),
        ("http://[::1]:80/realm", True),
        ("http://login.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("ftp://127.0.0.1", False),
        ("login.example.org", False),
        ("https://", False),
        ("", False),
        ("https://[", False),
    ],
)
def test_keys_come_over_a_way_that_nobody_can_change(url: str, *, confidential: bool):
    assert is_confidential(url) is confidential
