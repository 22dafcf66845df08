"""Certificates in headers: believed from a trusted proxy, where they can be read."""

import base64
import hashlib
from urllib.parse import quote

import pytest

from app.http.authentication.client_cert_header import ClientCertHeader
from tests.unit.http.authentication.proxied import (
    AUTHORITY,
    BOB,
    DIGEST,
    ENCODED,
    GOOD,
    HERE,
    OTHER,
    XFCC,
    Proxied,
    sequence,
)


@pytest.fixture
def behind() -> Proxied:
    return Proxied(HERE, ClientCertHeader.CLIENT_CERT)


@pytest.fixture
def behind_envoy() -> Proxied:
    return Proxied(HERE, ClientCertHeader.XFCC)


async def test_a_certificate_that_a_trusted_proxy_was_shown_is_its_caller_s(behind: Proxied):
    assert (await behind.get(("Client-Cert", GOOD))).status == 200
    assert (await behind.get(("Client-Cert", f"  {GOOD} "))).status == 200
    labels = {"method": "proxy-certificate", "result": "accepted", "reason": ""}
    assert behind.service.count("authn_total", **labels) == 2
    assert (await behind.get(("Client-Cert", sequence(OTHER.der)))).status == 403


@pytest.mark.parametrize(
    "element",
    [
        XFCC,
        f"By=spiffe://cluster/service;Hash={DIGEST};{XFCC}",
        f'Hash={DIGEST.upper()};Subject="CN=x\\"y,O=a;b";URI=;DNS=a;DNS=b;{XFCC}',
        f"cert={quote(BOB.pem, safe='')}",
        f"Chain={quote(AUTHORITY.own.pem)};{XFCC}",
        f'By="a";{XFCC.replace("Cert", "CERT")}',
    ],
    ids=range(6),
)
async def test_envoy_s_header_is_read(behind_envoy: Proxied, element: str):
    answer = await behind_envoy.get(("X-Forwarded-Client-Cert", element))
    assert answer.status == 200, answer.body


BAD_VALUES = {
    "no colons": ENCODED,
    "no end": f":{ENCODED}",
    "a string": f'"{ENCODED}"',
    "a token": "bob",
    "a parameter": f"{GOOD};a=1",
    "nothing encoded": "::",
    "URL-safe": sequence(BOB.der).replace("+", "-").replace("/", "_") + "-",
    "blanks within": f": {ENCODED}:",
    "a line end within": GOOD[:40] + "\n" + GOOD[40:],
    "cut": f":{ENCODED[:-8]}:",
    "not padded": f":{base64.b64encode(BOB.der + b'x').decode().rstrip('=')}:",
    "more after it": sequence(BOB.der + b"\0"),
    "less": sequence(BOB.der[:-1]),
    "PEM": BOB.pem.replace("\n", " "),
    "PEM in base64": sequence(BOB.pem.encode()),
    "two at once": sequence(BOB.der + OTHER.der),
    "a name only": sequence(BOB.certificate.subject.public_bytes()),
    "Envoy's": XFCC,
    "not ASCII": GOOD + "\u00e9",
}

BAD_ELEMENTS = {
    "Client-Cert's": GOOD,
    "no certificate": f'Hash={DIGEST};Subject="CN=bob,O=Example,C=DE"',
    "two certificates": f"{XFCC};{XFCC}",
    "an empty certificate": 'Cert=""',
    "not encoded": f'Cert="{BOB.pem.replace(chr(10), " ")}"',
    "another's hash": f"Hash={hashlib.sha256(OTHER.der).hexdigest()};{XFCC}",
    "two hashes": f"Hash={DIGEST};Hash=00;{XFCC}",
    "a chain": f'Cert="{quote(BOB.pem + AUTHORITY.own.pem)}"',
    "another's in front": f'Cert="{quote(OTHER.pem + BOB.pem)}"',
    "a key": f'Cert="{quote(BOB.pem.replace("CERTIFICATE", "PRIVATE KEY"))}"',
    "no quote at the end": XFCC[:-1],
    "a semicolon too many": f"{XFCC};",
    "not a pair": f"{XFCC};x",
    "a chain alone": f'Chain="{quote(BOB.pem)}"',
    "encoded twice": f'Cert="{quote(quote(BOB.pem))}"',
    "not UTF-8": 'Cert="%ff%fe"',
    "text before": f'Cert="x{quote(BOB.pem)}"',
}


@pytest.mark.parametrize("name", BAD_VALUES)
async def test_a_client_cert_that_cannot_be_read_is_nobody(behind: Proxied, name: str):
    answer = await behind.get(("Client-Cert", BAD_VALUES[name]))
    assert (answer.status, answer.document["code"]) == (401, "invalid-certificate")
    labels = {"method": "proxy-certificate", "result": "refused"}
    assert behind.service.count("authn_total", reason="invalid-certificate", **labels) == 1


@pytest.mark.parametrize("name", BAD_ELEMENTS)
async def test_an_element_of_envoy_s_that_cannot_be_read_is_nobody(
    behind_envoy: Proxied, name: str
):
    answer = await behind_envoy.get(("X-Forwarded-Client-Cert", BAD_ELEMENTS[name]))
    assert (answer.status, answer.document["code"]) == (401, "invalid-certificate")


@pytest.mark.parametrize(
    "headers",
    [
        [("Client-Cert", GOOD), ("Client-Cert", GOOD)],
        [("Client-Cert", GOOD), ("Client-Cert", "")],
        [("Client-Cert", f"{GOOD},{GOOD}")],
        [("Client-Cert", f"{GOOD}, ")],
        [("Client-Cert", GOOD), ("Authorization", "Bearer bob")],
        [("Client-Cert", GOOD), ("Authorization", "Basic Ym9iOmI=")],
    ],
    ids=range(6),
)
async def test_several_credentials_are_refused(behind: Proxied, headers: list[tuple[str, str]]):
    answer = await behind.get(*headers)
    assert (answer.status, answer.document["code"]) == (400, "several-credentials")


@pytest.mark.parametrize("given", ["Bearer bob", "Basic Ym9iOmI=", "Negotiate x", ""])
async def test_an_authorization_that_is_not_taken_is_one_too_many(given: str):
    front = Proxied(HERE, ClientCertHeader.CLIENT_CERT, takes_tokens=False)
    answer = await front.get(("Client-Cert", GOOD), ("Authorization", given))
    assert (answer.status, answer.document["code"]) == (400, "several-credentials")


async def test_several_elements_of_envoy_s_are_refused(behind_envoy: Proxied):
    for values in ((f"{XFCC},{XFCC}",), (XFCC, XFCC), (f'Subject="a",{XFCC}',)):
        headers = [("X-Forwarded-Client-Cert", value) for value in values]
        answer = await behind_envoy.get(*headers)
        assert (answer.status, answer.document["code"]) == (400, "several-credentials")


async def test_the_header_that_is_not_chosen_is_nobody_s(behind: Proxied, behind_envoy: Proxied):
    for front, header in (
        (behind, ("X-Forwarded-Client-Cert", XFCC)),
        (behind, ("Client_Cert", GOOD)),
        (behind_envoy, ("Client-Cert", GOOD)),
        (behind, ("Client-Cert", "")),
    ):
        answer = await front.get(header)
        assert (answer.status, answer.document["code"]) == (401, "unauthenticated")
        assert (await front.get(header, ("Authorization", "Bearer bob"))).status == 200
