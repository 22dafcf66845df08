"""Certificates in headers: believed from a trusted proxy, refused from everybody else, counted."""

import base64
import hashlib
from dataclasses import replace
from functools import cache
from ipaddress import ip_network
from urllib.parse import quote

import pytest

from app.http.authentication.client_cert_header import ClientCertHeader
from app.http.authentication.client_certificates import ClientCertificates
from app.http.authentication.forwarded import ForwardedHeader
from app.http.authentication.methods import Methods
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.authentication.shown_certificates import ProxyCertificate
from app.http.authentication.trusted_proxies import NO_PROXIES, TrustedProxies
from app.http.rate_limits import Limits, RateLimits
from tests.support.certificates import Authority, person
from tests.unit.http.application import Answer, RawHeaders, send
from tests.unit.http.fake_service import FakeService, Names

AUTHORITY = Authority()
BOB = AUTHORITY.sign(person("bob"))
OTHER = AUTHORITY.sign(person("mallory"))
HERE = TrustedProxies((ip_network("127.0.0.1"),))
ELSEWHERE = TrustedProxies((ip_network("10.0.0.0/8"),))
MAPPING = PrincipalMapping("RULE:^CN=(.*?),.*$/$1/")
FORGED = "untrusted-identity-header"


def sequence(der: bytes) -> str:
    return f":{base64.b64encode(der).decode()}:"


def envoys(pem: str) -> str:
    return f'Cert="{quote(pem)}"'


GOOD = sequence(BOB.der)
XFCC = envoys(BOB.pem)
ENCODED = GOOD.strip(":")
DIGEST = hashlib.sha256(BOB.der).hexdigest()


class Proxied:
    """The service behind a proxy at this address, or at another; it believes one header."""

    def __init__(
        self, proxies: TrustedProxies, header: ClientCertHeader, *, takes_tokens: bool = True
    ) -> None:
        self.service = FakeService()
        method = ProxyCertificate(header, ClientCertificates(MAPPING))
        state = self.service.application.state
        methods = Methods([Names(), method] if takes_tokens else [method])
        state.services = replace(state.services, authenticator=methods, proxies=proxies)

    async def get(self, *headers: tuple[str, str]) -> Answer:
        raw: RawHeaders = [(name.lower().encode(), value.encode()) for name, value in headers]
        return await send(self.service.app, "GET", "/quotas", headers=raw)


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


IDENTITY_NAMES = [
    "Client-Cert",
    "client-cert",
    "CLIENT-CERT",
    "Client_Cert",
    "client.cert",
    "Client-Cert-Chain",
    "ClientCert",
    "X-Client-Cert",
    "X_Client_Cert",
    "X-Client-Certificate",
    "X-Client-Cert-Chain",
    "X-Client-Cert-DN",
    "X-Forwarded-Client-Cert",
    "x-forwarded-client-cert",
    "X_Forwarded_Client_Cert",
    "X-Forwarded-Client_Cert",
    "X-Forwarded-ClientCert",
    "X-Forwarded-Client-Cert-Chain",
    "X-Forwarded-Tls-Client-Cert",
    "X-Forwarded-Tls-Client-Cert-Info",
    "X_Forwarded_Tls_Client_Cert",
    "X-SSL-Client-Cert",
    "X_SSL_CLIENT_CERT",
    "X-SSL-Client-Verify",
    "X-SSL-Client-DN",
    "X-SSL-Client-CN",
    "X-SSL-Client-S-DN",
    "X-SSL-Client-Subject",
    "X-SSL-Client-SHA1",
    "X-SSL-Client-NotAfter",
    "SSL-Client-Cert",
    "SSL_CLIENT_CERT",
    "SSL-Client-S-DN",
    "SSL_CLIENT_S_DN_CN",
    "Ssl-Client-Verify",
    "Ssl-Client-Subject-Dn",
    "X-SSL-Cert",
    "X-SSL-Certificate",
    "X-ARR-ClientCert",
    "X-Amzn-Mtls-Clientcert",
    "X-Amzn-Mtls-Clientcert-Leaf",
    "X-Amzn-Mtls-Clientcert-Subject",
    "X-TLS-Client-Cert",
    "X-TLS-Client-Subject",
    "TLS-Client-Cert",
    "TLS_CLIENT_CERT",
    "Cf-Client-Cert-Der-Base64",
    "X-Goog-Client-Cert-Subject-Dn",
    "X-Nginx-Ssl-Client-Cert",
    "XFCC",
    "X-XFCC",
]
"""What proxies call them, and what a careless proxy takes for the same."""

FORGED_REQUESTS: dict[str, list[tuple[str, str]]] = {
    **{f"named {name}": [(name, GOOD), (name.replace("-", "_"), XFCC)] for name in IDENTITY_NAMES},
    "empty": [("Client-Cert", "")],
    "twice": [("Client-Cert", GOOD), ("Client-Cert", GOOD)],
    "joined": [("Client-Cert", f"{GOOD}, {GOOD}")],
    "both": [("Client-Cert", GOOD), ("X-Forwarded-Client-Cert", XFCC)],
    "beside a token": [("Authorization", "Bearer bob"), ("Client-Cert", GOOD)],
    "from a proxy, it says": [("X-Forwarded-For", "10.0.0.1"), ("Client-Cert", GOOD)],
    "from a proxy, it says again": [("Forwarded", "for=10.0.0.1"), ("Client-Cert", GOOD)],
    "for a proxy": [("X-Real-IP", "10.0.0.1"), ("Client-Cert", GOOD)],
    "not a certificate": [("Client-Cert", "bob")],
    "a name": [("X-Forwarded-Client-Cert", 'Subject="CN=bob"')],
}

UNTRUSTING = {
    "no proxy is trusted": NO_PROXIES,
    "another is trusted": ELSEWHERE,
}


FORGED_SENDINGS = [(trust, name) for trust in UNTRUSTING for name in FORGED_REQUESTS]


@cache
def untrusting(trust: str, header: ClientCertHeader) -> Proxied:
    return Proxied(UNTRUSTING[trust], header)


def test_there_are_many_forgeries():
    assert len(FORGED_REQUESTS) > 50


@pytest.mark.parametrize(("trust", "name"), FORGED_SENDINGS)
async def test_nobody_else_says_which_certificate_was_shown(trust: str, name: str):
    for header in (ClientCertHeader.CLIENT_CERT, ClientCertHeader.XFCC):
        front = untrusting(trust, header)
        before = front.service.count("request_rejected_total", reason=FORGED)
        answer = await front.get(*FORGED_REQUESTS[name])
        assert (answer.status, answer.document["code"]) == (400, FORGED)
        assert front.service.count("request_rejected_total", reason=FORGED) == before + 1
        assert front.service.log == []


async def test_who_forges_is_counted_as_one_with_a_bad_credential_is():
    front = Proxied(NO_PROXIES, ClientCertHeader.CLIENT_CERT)
    limits = RateLimits(Limits(0, 0, 0, 0.1), front.service.metrics.count_rate_limited, now=float)
    state = front.service.application.state
    state.services = replace(state.services, limits=limits)
    answers = [(await front.get(("Client-Cert", GOOD))).status for _ in range(3)]
    assert answers == [400, 400, 429]
    labels = {"method": "proxy-certificate", "result": "refused", "reason": FORGED}
    assert front.service.count("authn_total", **labels) == 3
    assert front.service.count("rate_limited_total", scope="failures") == 1


async def test_bad_credentials_are_limited_for_the_caller_s_address_not_the_proxy_s():
    proxies = replace(HERE, header=ForwardedHeader.X_FORWARDED_FOR)
    front = Proxied(proxies, ClientCertHeader.CLIENT_CERT)
    limits = RateLimits(Limits(0, 0, 0, 0.1), now=float)
    state = front.service.application.state
    state.services = replace(state.services, limits=limits)

    async def answers(caller: str) -> list[int]:
        headers = [("Authorization", "Bearer stranger"), ("X-Forwarded-For", caller)]
        return [(await front.get(*headers)).status for _ in range(3)]

    assert await answers("192.0.2.1") == [401, 401, 429]
    assert await answers("192.0.2.2, 127.0.0.1") == [401, 401, 429]
    assert await answers("192.0.2.1") == [429, 429, 429]
    assert await answers("unknown") == [401, 401, 429]


async def test_without_such_a_header_others_are_as_welcome_as_before():
    front = Proxied(NO_PROXIES, ClientCertHeader.CLIENT_CERT)
    token = ("Authorization", "Bearer bob")
    others = [("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https"), ("Cert", "x")]
    assert (await front.get(token, *others)).status == 200


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
