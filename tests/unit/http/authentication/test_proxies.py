"""Which proxy is trusted about an address, and forged headers of everybody else."""

from dataclasses import replace
from functools import cache
from ipaddress import ip_network

import pytest
from starlette.requests import Request

from app.http.authentication.proxies import NO_PROXIES, ForwardedHeader, TrustedProxies
from app.http.guards import presented_by
from app.http.rate_limits import Limits, RateLimits
from tests.unit.http.authentication.proxied import ELSEWHERE, HERE, RFC_9440, XFCC, Proxied

NETWORKS = tuple(map(ip_network, ("10.0.0.0/8", "2001:db8:1::/48", "192.0.2.7")))
FORWARDED = TrustedProxies(NETWORKS, ForwardedHeader.FORWARDED)
X_FORWARDED_FOR = TrustedProxies(NETWORKS, ForwardedHeader.X_FORWARDED_FOR)
PROXY = "10.0.0.1"


TRUSTED = """
    10.0.0.1 10.255.255.255 ::ffff:10.0.0.1 ::FFFF:a00:1 2001:db8:1::5 2001:db8:1::5%eth0 192.0.2.7
"""
NOT_TRUSTED = [
    *("", "192.0.2.8", "11.0.0.1", "2001:db8:2::1", "::10.0.0.1", "64:ff9b::a00:1", "010.0.0.1"),
    *("proxy.example.org", "10.0.0.1, 10.0.0.2", "testclient"),
]


def test_a_proxy_is_trusted_by_its_address(subtests: pytest.Subtests):
    for peer in [*TRUSTED.split(), *NOT_TRUSTED]:
        with subtests.test(peer=peer):
            assert X_FORWARDED_FOR.trust(peer) == (peer not in NOT_TRUSTED)
            assert not NO_PROXIES.trust(peer)


NOTED = {
    (X_FORWARDED_FOR, "203.0.113.5"): [
        *("203.0.113.5", "203.0.113.5:4711", "::ffff:203.0.113.5", "1.1.1.1, 203.0.113.5"),
        *("1.1.1.1,203.0.113.5,10.1.1.1", "1.1.1.1\n203.0.113.5"),
        "203.0.113.5\n10.1.1.1\n10.1.1.2",
    ],
    (X_FORWARDED_FOR, "2001:db8:9::1"): ["2001:db8:9::1", "[2001:DB8:9::1]:443"],
    (X_FORWARDED_FOR, "10.1.1.1"): ["10.1.1.1", "10.1.1.1, 10.1.1.2"],
    (X_FORWARDED_FOR, ""): [
        *("", "203.0.113.5, unknown", "203.0.113.5, ", "203.0.113.5,,10.1.1.1", "203.0.113.300"),
        *("203.0.113.05", "0xcb007105", "3405803781", "host.example.org", "203.0.113.5/32"),
        *("203.0.113.5 10.1.1.1", "fe80::1%eth0"),
    ],
    (FORWARDED, "203.0.113.5"): [
        *("for=203.0.113.5", "For=203.0.113.5;proto=https;by=10.0.0.1"),
        *("proto=https ; for=203.0.113.5", 'for="203.0.113.5:4711"', 'for="203.0.113\\.5"'),
        *("for=1.1.1.1, for=203.0.113.5", "for=1.1.1.1\nfor=203.0.113.5, for=10.1.1.1"),
        'for="1.1.1.1, for=10.0.0.1", for=203.0.113.5',
        'for=1.1.1.1;x="a,b\\",for=10.0.0.1", for=203.0.113.5',
    ],
    (FORWARDED, "2001:db8:9::1"): ['for="[2001:db8:9::1]:4711"', 'for="[2001:db8:9::1]"'],
    (FORWARDED, ""): [
        *("for=203.0.113.5, for=unknown", "for=203.0.113.5, for=_hidden", "for=203.0.113.5, "),
        *("for=203.0.113.5, proto=https", "for=203.0.113.5;for=10.0.0.1", "203.0.113.5"),
        *('for="203.0.113.5', "for = 203.0.113.5", "for=203.0.113.5;;proto=http"),
    ],
}
"""By whom to believe, and by the caller: what proxies noted, each header on its line."""


def test_the_caller_is_read_from_the_end_of_what_proxies_noted(subtests: pytest.Subtests):
    for (proxies, caller), headers in NOTED.items():
        assert proxies.caller_of(PROXY, []) == PROXY
        for noted in headers:
            with subtests.test(noted=noted, caller=caller):
                assert proxies.caller_of(PROXY, noted.split("\n")) == caller


def test_a_proxy_that_ends_tls_says_so(subtests: pytest.Subtests):
    for proxies, noted, encrypted in [
        (X_FORWARDED_FOR, [("x-forwarded-proto", "https")], True),
        (X_FORWARDED_FOR, [("x-forwarded-proto", "HTTPS, https")], True),
        (X_FORWARDED_FOR, [("x-forwarded-proto", "http")], False),
        (X_FORWARDED_FOR, [("x-forwarded-proto", "https, http")], False),
        (X_FORWARDED_FOR, [("x-forwarded-proto", "https"), ("x-forwarded-proto", "")], False),
        (X_FORWARDED_FOR, [("forwarded", "for=1.1.1.1;proto=https")], False),
        (X_FORWARDED_FOR, [], False),
        (FORWARDED, [("forwarded", "for=1.1.1.1;proto=https")], True),
        (FORWARDED, [("forwarded", 'for=1.1.1.1;Proto="https"')], True),
        (FORWARDED, [("forwarded", "for=1.1.1.1;proto=https, for=10.0.0.2;proto=http")], True),
        (FORWARDED, [("forwarded", "for=1.1.1.1;proto=https, for=2.2.2.2")], False),
        (FORWARDED, [("forwarded", "for=1.1.1.1;proto=https;proto=https")], False),
        (FORWARDED, [("forwarded", "for=1.1.1.1"), ("x-forwarded-proto", "https")], False),
        (FORWARDED, [], False),
        (TrustedProxies(NETWORKS), [("x-forwarded-proto", "https")], False),
    ]:
        with subtests.test(noted=noted):
            raw = [(name.encode(), value.encode()) for name, value in noted]
            for peer, believed in ((PROXY, encrypted), ("203.0.113.9", False)):
                scope = {"type": "http", "headers": raw, "client": (peer, 1), "scheme": "http"}
                assert presented_by(Request(scope), proxies).is_encrypted is believed
            scope["scheme"] = "https"
            assert presented_by(Request(scope), proxies).is_encrypted


@pytest.mark.parametrize("peer", ["203.0.113.9", "::1", "11.0.0.1"])
def test_nobody_else_is_believed(peer: str):
    assert X_FORWARDED_FOR.caller_of(peer, ["10.0.0.1"]) == peer
    assert FORWARDED.caller_of(peer, ["for=10.0.0.1"]) == peer
    assert NO_PROXIES.caller_of(peer, ["10.0.0.1"]) == peer


def test_without_the_setting_a_proxy_is_the_caller():
    silent = TrustedProxies(NETWORKS)
    assert silent.caller_of(PROXY, ["203.0.113.5"]) == PROXY


FORGED = "untrusted-identity-header"


IDENTITY_NAMES = """
    Client-Cert client-cert CLIENT-CERT Client_Cert client.cert Client-Cert-Chain ClientCert
    X-Client-Cert X_Client_Cert X-Client-Certificate X-Client-Cert-Chain X-Client-Cert-DN
    X-Forwarded-Client-Cert x-forwarded-client-cert X_Forwarded_Client_Cert
    X-Forwarded-Client_Cert X-Forwarded-ClientCert X-Forwarded-Client-Cert-Chain
    X-Forwarded-Tls-Client-Cert X-Forwarded-Tls-Client-Cert-Info X_Forwarded_Tls_Client_Cert
    X-SSL-Client-Cert X_SSL_CLIENT_CERT X-SSL-Client-Verify X-SSL-Client-DN X-SSL-Client-CN
    X-SSL-Client-S-DN X-SSL-Client-Subject X-SSL-Client-SHA1 X-SSL-Client-NotAfter
    SSL-Client-Cert SSL_CLIENT_CERT SSL-Client-S-DN SSL_CLIENT_S_DN_CN Ssl-Client-Verify
    Ssl-Client-Subject-Dn X-SSL-Cert X-SSL-Certificate X-ARR-ClientCert X-Amzn-Mtls-Clientcert
    X-Amzn-Mtls-Clientcert-Leaf X-Amzn-Mtls-Clientcert-Subject X-TLS-Client-Cert
    X-TLS-Client-Subject TLS-Client-Cert TLS_CLIENT_CERT Cf-Client-Cert-Der-Base64
    X-Goog-Client-Cert-Subject-Dn X-Nginx-Ssl-Client-Cert XFCC X-XFCC
"""
"""What proxies call them, and what a careless proxy takes for the same."""

FORGED_REQUESTS: dict[str, list[tuple[str, str]]] = {
    **{
        f"named {name}": [(name, RFC_9440), (name.replace("-", "_"), XFCC)]
        for name in IDENTITY_NAMES.split()
    },
    "empty": [("Client-Cert", "")],
    "twice": [("Client-Cert", RFC_9440), ("Client-Cert", RFC_9440)],
    "joined": [("Client-Cert", f"{RFC_9440}, {RFC_9440}")],
    "both": [("Client-Cert", RFC_9440), ("X-Forwarded-Client-Cert", XFCC)],
    "beside a token": [("Authorization", "Bearer bob"), ("Client-Cert", RFC_9440)],
    "from a proxy, it says": [("X-Forwarded-For", "10.0.0.1"), ("Client-Cert", RFC_9440)],
    "from a proxy, it says again": [("Forwarded", "for=10.0.0.1"), ("Client-Cert", RFC_9440)],
    "for a proxy": [("X-Real-IP", "10.0.0.1"), ("Client-Cert", RFC_9440)],
    "not a certificate": [("Client-Cert", "bob")],
    "a name": [("X-Forwarded-Client-Cert", 'Subject="CN=bob"')],
}

BESIDE = {"authorization", "x-forwarded-for", "forwarded", "x-real-ip"}

UNTRUSTING = {"no proxy is trusted": NO_PROXIES, "another is trusted": ELSEWHERE}


FORGED_SENDINGS = [(trust, name) for trust in UNTRUSTING for name in FORGED_REQUESTS]


@cache
def untrusting(trust: str) -> Proxied:
    return Proxied(UNTRUSTING[trust])


async def test_a_header_that_names_a_certificate_is_refused(subtests: pytest.Subtests):
    assert FORGED_SENDINGS
    for trust, name in FORGED_SENDINGS:
        with subtests.test(trust=trust, name=name):
            front = untrusting(trust)
            before = front.service.count("request_rejected_total", reason=FORGED)
            answer = await front.get(*FORGED_REQUESTS[name])
            assert (answer.status, answer.document["code"]) == (400, FORGED)
            pointers = {error["pointer"] for error in answer.document["errors"]}
            assert pointers == {sent.lower() for sent, _ in FORGED_REQUESTS[name]} - BESIDE
            assert front.service.count("request_rejected_total", reason=FORGED) == before + 1
            assert front.service.log == []


async def test_such_a_header_of_a_trusted_proxy_is_no_credential(subtests: pytest.Subtests):
    front = Proxied(HERE)
    for header in (("Client-Cert", RFC_9440), ("X-Forwarded-Client-Cert", XFCC)):
        with subtests.test(header=header[0]):
            answer = await front.get(header)
            assert (answer.status, answer.document["code"]) == (401, "unauthenticated")
            assert (await front.get(header, ("Authorization", "Bearer bob"))).status == 200


async def test_who_forges_is_counted_as_one_with_a_bad_credential_is():
    front = Proxied(NO_PROXIES)
    limits = RateLimits(Limits(0, 0, 0, 0.1), front.service.metrics.count_rate_limited, now=float)
    front.service.services = replace(front.service.services, limits=limits)
    answers = [(await front.get(("Client-Cert", RFC_9440))).status for _ in range(3)]
    assert answers == [400, 400, 429]
    labels = {"method": "certificate-header", "result": "refused", "reason": FORGED}
    assert front.service.count("authn_total", **labels) == 3
    assert front.service.count("rate_limited_total", scope="failures") == 1


async def test_bad_credentials_are_limited_for_the_caller_s_address_not_the_proxy_s():
    proxies = replace(HERE, header=ForwardedHeader.X_FORWARDED_FOR)
    front = Proxied(proxies)
    limits = RateLimits(Limits(0, 0, 0, 0.1), now=float)
    front.service.services = replace(front.service.services, limits=limits)

    async def answers(caller: str) -> list[int]:
        headers = [("Authorization", "Bearer stranger"), ("X-Forwarded-For", caller)]
        return [(await front.get(*headers)).status for _ in range(3)]

    assert await answers("192.0.2.1") == [401, 401, 429]
    assert await answers("192.0.2.2, 127.0.0.1") == [401, 401, 429]
    assert await answers("192.0.2.1") == [429, 429, 429]
    assert await answers("unknown") == [401, 401, 429]


async def test_without_such_a_header_others_are_as_welcome_as_before():
    front = Proxied(NO_PROXIES)
    token = ("Authorization", "Bearer bob")
    others = [("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https"), ("Cert", "x")]
    assert (await front.get(token, *others)).status == 200
