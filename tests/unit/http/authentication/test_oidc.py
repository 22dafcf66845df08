"""Signed tokens, and the identity provider's keys that they are checked with."""

import asyncio
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.domain.errors import NotSentError
from app.http.authentication.discovery import is_confidential
from app.http.authentication.oidc import ALGORITHMS, SigningKeys
from app.http.errors import InvalidTokenError
from tests.testkit.virtual_time import in_virtual_time
from tests.unit.http.authentication.tokens import (
    AUDIENCE,
    EC_384_KEY,
    EC_KEY,
    ED_KEY,
    ISSUER,
    JWKS_URL,
    KEYS,
    NOW,
    OTHER_RSA_KEY,
    RSA_KEY,
    SHORT_RSA_KEY,
    Provider,
    claims,
    published,
    raw,
    signed,
    signed_text,
    tokens_of,
)

NOW_S = int(NOW.timestamp())
HEADER = '{"alg":"RS256","kid":"rsa"}'
PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def provider() -> Provider:
    provider = Provider()
    provider.publish(KEYS)
    return provider


GOOD = {
    "RS256": signed(),
    "RS512": signed(algorithm="RS512"),
    "PS256": signed(algorithm="PS256"),
    "ES256": signed(key=EC_KEY, algorithm="ES256", kid="ec"),
    "ES384": signed(key=EC_384_KEY, algorithm="ES384", kid="ec-384"),
    "EdDSA": signed(key=ED_KEY, algorithm="EdDSA", kid="ed"),
    "a key that says its algorithm": signed(kid="rsa-for-rs256"),
    "an access token": signed(typ="at+jwt"),
    "an access token, spelt in full": signed(typ="application/at+JWT"),
    "no type": signed(typ=...),
    "several audiences": signed(claims(aud=["other", AUDIENCE])),
    "no nbf and no iat": signed(claims(nbf=..., iat=...)),
    "just expired, within the leeway": signed(claims(exp=NOW_S - 29)),
    "not valid yet, within the leeway": signed(claims(nbf=NOW_S + 29, iat=NOW_S + 29)),
    "times with fractions": signed(claims(exp=NOW_S + 0.5, iat=NOW_S - 0.5)),
    "claims of other kinds": signed(claims(groups=["a"], nested={"a": None})),
}


async def test_a_good_token_admits_its_subject(provider: Provider, subtests: pytest.Subtests):
    for name, token in GOOD.items():
        with subtests.test(name):
            assert await tokens_of(provider).principal(token) == "User:alice"


def tampered(token: str) -> str:
    head, body, signature = token.split(".")
    changed = raw("", json.dumps(claims(sub="admin"))).split(".")[1]
    assert changed != body
    return f"{head}.{changed}.{signature}"


def with_header(**header: Any) -> str:
    return signed_text(json.dumps({"alg": "RS256", "kid": "rsa", **header}), json.dumps(claims()))


def with_claims(text: str) -> str:
    return signed_text(HEADER, text)


CLAIMS = json.dumps(claims())
LISTENER = "http://127.0.0.1:9/keys"

FORGED = {
    "no signature at all": raw('{"alg":"none"}', CLAIMS, b""),
    "alg none with a signature": raw('{"alg":"none","kid":"rsa"}', CLAIMS),
    "alg None": raw('{"alg":"None","kid":"rsa"}', CLAIMS),
    "alg nOnE": raw('{"alg":"nOnE","kid":"rsa"}', CLAIMS),
    "no alg": raw('{"kid":"rsa"}', CLAIMS),
    "alg null": raw('{"alg":null,"kid":"rsa"}', CLAIMS),
    "alg a list": raw('{"alg":["RS256"],"kid":"rsa"}', CLAIMS),
    "alg rs256": signed_text('{"alg":"rs256","kid":"rsa"}', CLAIMS),
    "alg with a blank": signed_text('{"alg":"RS256 ","kid":"rsa"}', CLAIMS),
    "HS256 with a published secret": signed(
        key="c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", algorithm="HS256", kid="secret"
    ),
    "HS256 under an RSA key's name": signed(key="x" * 64, algorithm="HS256", kid="rsa"),
    "HS512 under an RSA key's name": signed(key="x" * 64, algorithm="HS512", kid="rsa"),
    "another's key": signed(key=OTHER_RSA_KEY),
    "an EC key under an RSA key's name": signed(key=EC_KEY, algorithm="ES256", kid="rsa"),
    "an RSA key under an EC key's name": signed(kid="ec"),
    "ES256 with a key of another curve": signed(key=EC_KEY, algorithm="ES256", kid="ec-384"),
    "PS256 with a key for RS256": signed(algorithm="PS256", kid="rsa-for-rs256"),
    "a key to encrypt with": signed(kid="rsa-to-encrypt"),
    "a short key": signed_text('{"alg":"RS256","kid":"short"}', CLAIMS, SHORT_RSA_KEY),
    "a broken key": signed(kid="broken"),
    "no kid": signed(kid=...),
    "an unknown kid": signed(kid="unknown"),
    "an empty kid": with_header(kid=""),
    "kid null": with_header(kid=None),
    "kid a number": with_header(kid=1),
    "kid a path": signed(kid="../../../../dev/null"),
    "kid of SQL": signed(kid="' or 1=1 --"),
    "kid an address": signed(kid=LISTENER),
    "an embedded key": raw(json.dumps({"alg": "RS256", "jwk": KEYS["keys"][0]}), CLAIMS),
    "an address of keys, no kid": raw(json.dumps({"alg": "RS256", "jku": LISTENER}), CLAIMS),
    "an address of certificates": raw(json.dumps({"alg": "RS256", "x5u": LISTENER}), CLAIMS),
    "another's key and an address of keys": signed(key=OTHER_RSA_KEY, kid="theirs", jku=LISTENER),
    "an extension that must be understood": with_header(crit=["exp"]),
    "an unencoded payload": with_header(b64=False, crit=["b64"]),
    "an encrypted one": "e30." * 4 + "e30",
    "a type of another kind": with_header(typ="logout+jwt"),
    "a type that is no text": with_header(typ=1),
    "the header is a list": signed_text('["RS256"]', CLAIMS),
    "the header is not JSON": signed_text("RS256", CLAIMS),
    "the header repeats alg": signed_text('{"alg":"RS256","alg":"none","kid":"rsa"}', CLAIMS),
    "the header is Latin-1": raw(b'{"alg":"RS256","kid":"\xe9"}', CLAIMS),
    "a changed body": tampered(signed()),
    "a cut signature": signed()[:-4],
    "an empty signature": signed().rpartition(".")[0] + ".",
    "a signature of zeros (RSA)": raw(HEADER, CLAIMS, bytes(256)),
    "a signature of zeros (EC)": raw('{"alg":"ES256","kid":"ec"}', CLAIMS, bytes(64)),
    "a signature in DER (EC)": raw(
        '{"alg":"ES256","kid":"ec"}', CLAIMS, b"\x30\x06\x02\x01\x01\x02\x01\x01"
    ),
    "a dot at the end": signed() + ".",
    "padding": signed().replace(".", "=.", 1),
    "the other base64": signed() + "+/",
    "two sections": signed().rpartition(".")[0],
    "too long": with_claims(json.dumps(claims(pad="x" * 8192))),
    "another issuer": signed(claims(iss="https://evil.example.org/realm")),
    "an issuer with a slash": signed(claims(iss=ISSUER + "/")),
    "an issuer in capitals": signed(claims(iss=ISSUER.upper())),
    "no issuer": signed(claims(iss=...)),
    "a list of issuers": signed(claims(iss=[ISSUER])),
    "another audience": signed(claims(aud="other")),
    "no audience": signed(claims(aud=...)),
    "an empty audience": signed(claims(aud=[])),
    "an audience inside another": signed(claims(aud=[[AUDIENCE]])),
    "an audience as a key": signed(claims(aud={AUDIENCE: True})),
    "a beginning of the audience": signed(claims(aud=AUDIENCE + "-test")),
    "expired": signed(claims(exp=NOW_S - 31)),
    "no expiry": signed(claims(exp=...)),
    "expiry null": signed(claims(exp=None)),
    "expiry a text": signed(claims(exp=str(NOW_S + 600))),
    "expiry true": signed(claims(exp=True)),
    "expiry a list": signed(claims(exp=[NOW_S + 600])),
    "expiry NaN": with_claims(CLAIMS.replace(str(NOW_S + 600), "NaN")),
    "expiry Infinity": with_claims(CLAIMS.replace(str(NOW_S + 600), "Infinity")),
    "expiry below zero": signed(claims(exp=-1)),
    "not valid yet": signed(claims(nbf=NOW_S + 31)),
    "nbf a text": signed(claims(nbf="0")),
    "issued in the future": signed(claims(iat=NOW_S + 31)),
    "iat an object": signed(claims(iat={})),
    "no subject": signed(claims(sub=...)),
    "a subject null": signed(claims(sub=None)),
    "an empty subject": signed(claims(sub="")),
    "a subject of blanks": signed(claims(sub=" ")),
    "a subject with a blank in front": signed(claims(sub=" alice")),
    "a number as subject": signed(claims(sub=1)),
    "a list as subject": signed(claims(sub=["alice"])),
    "everybody": signed(claims(sub="*")),
    "nobody": signed(claims(sub="ANONYMOUS")),
    "a principal as subject": signed(claims(sub="User:admin")),
    "a subject of 257 bytes": signed(claims(sub="alice" * 51 + "é")),
    "a principal in other letters": signed(claims(sub="uSeR :admin")),
    "a line feed in the subject": signed(claims(sub="alice\nadmin")),
    "U+0000 in the subject": signed(claims(sub="alice\0")),
    "half a character in the subject": with_claims(CLAIMS.replace("alice", "\\ud800")),
    "repeated claims": with_claims(CLAIMS[:-1] + ',"sub":"admin"}'),
    "claims in a list": with_claims(f"[{CLAIMS}]"),
    "claims that are not JSON": with_claims("sub=alice"),
    "claims in UTF-16": signed_text(HEADER, CLAIMS).split(".")[0]
    + "."
    + raw("", CLAIMS.encode("utf-16")).split(".")[1]
    + ".AAAA",
    "claims nested a thousandfold": with_claims("[" * 1000 + "]" * 1000),
}


async def test_no_other_token_admits_anybody(provider: Provider, subtests: pytest.Subtests):
    for name, token in FORGED.items():
        with subtests.test(name):
            with pytest.raises(InvalidTokenError) as refusal:
                await tokens_of(provider).principal(token)
            assert "alice" not in refusal.value.detail
            assert set(provider.asked) <= {f"{ISSUER}/keys"}


async def test_only_the_algorithms_of_the_settings_are_accepted(provider: Provider):
    tokens = tokens_of(provider, algorithms=frozenset({"ES256"}))
    with pytest.raises(InvalidTokenError, match="not allowed"):
        await tokens.principal(signed())
    assert await tokens.principal(GOOD["ES256"]) == "User:alice"


async def test_the_public_key_is_no_secret(provider: Provider):
    """Sign with the PEM as the HMAC key: what a library once mistook for the real thing."""
    start = raw('{"alg":"HS256","kid":"rsa"}', CLAIMS).rpartition(".")[0]
    digest = hmac.new(PUBLIC_PEM, start.encode(), hashlib.sha256).digest()
    token = f"{start}.{raw('', '', digest).rpartition('.')[2]}"
    with pytest.raises(InvalidTokenError):
        await tokens_of(provider, algorithms=ALGORITHMS).principal(token)


async def test_another_claim_can_name_the_principal(provider: Provider, subtests: pytest.Subtests):
    for name in ["system:serviceaccount:ci:deploy", "CN=a,O=b", "ä ö", "a@b"]:
        with subtests.test(name=name):
            tokens = tokens_of(provider, principal_claim="preferred_username")
            assert await tokens.principal(signed(claims(preferred_username=name))) == f"User:{name}"


async def test_a_prefix_makes_names_of_the_provider_nobody_else_s(provider: Provider):
    tokens = tokens_of(provider, principal_prefix="oidc/", privileged=frozenset({"User:alice"}))
    assert await tokens.principal(signed()) == "User:oidc/alice"
    for name in ("", "ANONYMOUS", "User:alice", " alice"):
        with pytest.raises(InvalidTokenError):
            await tokens.principal(signed(claims(sub=name)))


async def test_a_token_names_no_super_user_or_auditor_by_chance(provider: Provider):
    tokens = tokens_of(provider, privileged=frozenset({"User:root", "User:alice"}))
    assert await tokens.principal(signed(claims(sub="bob"))) == "User:bob"
    with pytest.raises(InvalidTokenError, match="QUOTAS_OIDC_PRIVILEGED_PRINCIPALS"):
        await tokens.principal(signed())


FIRST = {"keys": [published(RSA_KEY, "first", "RS256")]}
BOTH = {"keys": [*FIRST["keys"], published(EC_KEY, "second", "ES256")]}
DISCOVERY = f"{ISSUER}/.well-known/openid-configuration"


@pytest.fixture
def publisher() -> Provider:
    publisher = Provider()
    publisher.publish(FIRST)
    return publisher


async def test_keys_are_fetched_once_and_cached(publisher: Provider):
    keys = publisher.keys()
    for _ in range(3):
        assert await keys.key("first") is not None
    assert publisher.asked == [JWKS_URL]
    assert (keys.age_s(), publisher.fetches) == (0.0, ["ok"])


async def test_old_keys_are_asked_for_again(publisher: Provider):
    keys = publisher.keys()
    await keys.key("first")
    publisher.seconds += 301
    assert await keys.key("first") is not None
    assert len(publisher.asked) == 2


async def test_a_token_that_names_no_key_is_checked_with_the_only_key(publisher: Provider):
    for only in (FIRST, {"keys": [{**FIRST["keys"][0], "kid": None}]}):
        publisher.publish(only)
        assert await publisher.keys().key(None) is not None
    publisher.publish(BOTH)
    assert await publisher.keys().key(None) is None


async def test_a_new_key_is_found_when_it_is_first_used(publisher: Provider):
    keys = publisher.keys()
    await keys.key("first")
    publisher.publish(BOTH)
    publisher.seconds += 30
    assert await keys.key("second") is not None


async def test_a_key_that_was_withdrawn_signs_no_more(publisher: Provider):
    keys = publisher.keys()
    await keys.key("first")
    publisher.publish({"keys": [published(OTHER_RSA_KEY, "other", "RS256")]})
    publisher.seconds += 301
    assert await keys.key("first") is None


ODD = [None, 5, 1.5, True, [], {}, ["RSA"], "", "!", "\u00e9", "none", "HS256", "RS999", "A" * 9999]


async def test_an_odd_key_hides_no_other_key(subtests: pytest.Subtests):
    for key, algorithm in ((RSA_KEY, "RS256"), (EC_KEY, "ES256"), (ED_KEY, "EdDSA")):
        whole = published(key, "odd", algorithm)
        for member in {*whole, "alg"}:
            with subtests.test(member, algorithm=algorithm):
                odd = [{**whole, member: value} for value in ODD]
                odd.append({name: value for name, value in whole.items() if name != member})
                publisher = Provider()
                publisher.publish({"keys": [*odd, *FIRST["keys"]]})
                assert await publisher.keys().key("first") is not None
                assert publisher.fetches == ["ok"]


async def test_a_new_key_is_not_denied_while_the_provider_does_not_tell(publisher: Provider):
    keys = publisher.keys()
    await keys.key("first")
    publisher.answers[JWKS_URL] = httpx.ConnectError("refused")
    publisher.seconds += 30
    for _ in range(2):
        with pytest.raises(NotSentError) as refusal:
            await keys.key("second")
        assert refusal.value.code == "identity-provider-unavailable"
        assert await keys.key("first") is not None
    publisher.publish(BOTH)
    publisher.seconds += 30
    assert await keys.key("second") is not None
    assert await keys.key("third") is None


@in_virtual_time
async def test_a_provider_that_hangs_delays_nobody_whose_key_is_cached():
    loop, hangs = asyncio.get_running_loop(), False

    async def respond(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600 if hangs else 0)
        return httpx.Response(200, json=FIRST)

    client = httpx.AsyncClient(transport=httpx.MockTransport(respond))
    keys = SigningKeys(ISSUER, JWKS_URL, client, monotonic=loop.time)
    assert await keys.key("first") is not None
    hangs = True
    await asyncio.sleep(301)
    waited = []
    for _ in range(500):
        begun = loop.time()
        assert await keys.key("first") is not None
        waited.append(loop.time() - begun)
        await asyncio.sleep(0.1)
    assert max(waited) <= 0.25
    assert sum(waited) <= 0.5, "once for each fetch, of which there are two in that time"
    await keys.close()


async def test_unknown_keys_make_at_most_one_question_in_half_a_minute(publisher: Provider):
    keys = publisher.keys()
    for number in range(10_000):
        if number == 5_000:
            publisher.seconds += 31
        assert await keys.key(f"unknown-{number}") is None
    assert len(publisher.asked) == 2


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
    "nested too deep": httpx.Response(200, content=b"[" * 900_000),
    "odd keys alone": httpx.Response(200, json={"keys": [{"kty": []}, {"kty": "RSA", "n": 5}]}),
    "secrets alone": httpx.Response(200, json={"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]}),
}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_without_an_answer_the_keys_are_good_for_an_hour(publisher: Provider, answer: Any):
    keys = publisher.keys()
    await keys.key("first")
    publisher.answers[JWKS_URL] = answer
    publisher.seconds += 3599
    assert await keys.key("first") is not None
    publisher.seconds += 2
    with pytest.raises(NotSentError) as refusal:
        await keys.key("first")
    assert refusal.value.code == "identity-provider-unavailable"
    assert set(publisher.asked) == {JWKS_URL}
    assert publisher.fetches[0] == "ok"
    assert set(publisher.fetches[1:]) == {"failed"}


async def test_without_any_answer_nobody_can_be_judged(subtests: pytest.Subtests):
    for name, answer in NO_ANSWERS.items():
        with subtests.test(name):
            publisher = Provider({JWKS_URL: answer})
            keys = publisher.keys()
            with pytest.raises(NotSentError):
                await keys.key("first")
            assert keys.age_s() is None
            publisher.publish(FIRST)
            publisher.seconds += 30
            assert await keys.key("first") is not None


async def test_the_keys_are_found_where_the_issuer_says():
    publisher = Provider()
    publisher.publish({"issuer": ISSUER, "jwks_uri": JWKS_URL}, DISCOVERY)
    publisher.publish(FIRST)
    assert await publisher.keys(None).key("first") is not None
    assert publisher.asked == [DISCOVERY, JWKS_URL]


async def test_a_discovery_document_that_cannot_be_trusted_is_not(subtests: pytest.Subtests):
    for document in [
        {"issuer": "https://other.example.org", "jwks_uri": JWKS_URL},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": ["https://login.example.org/keys"]},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
    ]:
        with subtests.test(document=document):
            publisher = Provider()
            publisher.publish(document, DISCOVERY)
            with pytest.raises(NotSentError):
                await publisher.keys(None).key("first")
            assert publisher.asked == [DISCOVERY]


CONFIDENTIAL = """
    https://login.example.org http://127.0.0.1:9400 http://localhost/realm http://[::1]:80/realm
"""
NOT_CONFIDENTIAL = """
    http://login.example.org http://127.0.0.1.example.org ftp://127.0.0.1 login.example.org
    https:// https://[
"""


def test_keys_come_over_a_confidential_connection():
    assert all(map(is_confidential, CONFIDENTIAL.split()))
    assert not any(map(is_confidential, ["", *NOT_CONFIDENTIAL.split()]))
