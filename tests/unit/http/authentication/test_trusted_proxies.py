"""Whose word about the caller's address is taken, and what it says."""

from ipaddress import ip_network

import pytest

from app.http.authentication.forwarded import ForwardedHeader
from app.http.authentication.trusted_proxies import NO_PROXIES, TrustedProxies

NETWORKS = tuple(map(ip_network, ("10.0.0.0/8", "2001:db8:1::/48", "192.0.2.7")))
FORWARDED = TrustedProxies(NETWORKS, ForwardedHeader.FORWARDED)
X_FORWARDED_FOR = TrustedProxies(NETWORKS, ForwardedHeader.X_FORWARDED_FOR)
PROXY = "10.0.0.1"


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.0.0.1", True),
        ("10.255.255.255", True),
        ("::ffff:10.0.0.1", True),
        ("::FFFF:a00:1", True),
        ("2001:db8:1::5", True),
        ("2001:db8:1::5%eth0", True),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("11.0.0.1", False),
        ("2001:db8:2::1", False),
        ("::10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("", False),
        ("proxy.example.org", False),
        ("010.0.0.1", False),
        ("10.0.0.1, 10.0.0.2", False),
        ("testclient", False),
    ],
)
def test_a_proxy_is_known_by_its_address(peer: str, *, trusted: bool):
    assert X_FORWARDED_FOR.trust(peer) is trusted
    assert not NO_PROXIES.trust(peer)


@pytest.mark.parametrize(
    ("noted", "caller"),
    [
        (["203.0.113.5"], "203.0.113.5"),
        (["203.0.113.5:4711"], "203.0.113.5"),
        (["2001:db8:9::1"], "2001:db8:9::1"),
        (["[2001:DB8:9::1]:443"], "2001:db8:9::1"),
        (["::ffff:203.0.113.5"], "203.0.113.5"),
        (["1.1.1.1, 203.0.113.5"], "203.0.113.5"),
        (["1.1.1.1,203.0.113.5,10.1.1.1"], "203.0.113.5"),
        (["1.1.1.1", "203.0.113.5"], "203.0.113.5"),
        (["203.0.113.5", "10.1.1.1", "10.1.1.2"], "203.0.113.5"),
        (["10.1.1.1"], "10.1.1.1"),
        (["10.1.1.1, 10.1.1.2"], "10.1.1.1"),
        (["203.0.113.5, unknown"], ""),
        (["203.0.113.5, "], ""),
        (["203.0.113.5,,10.1.1.1"], ""),
        ([""], ""),
        (["203.0.113.300"], ""),
        (["203.0.113.05"], ""),
        (["0xcb007105"], ""),
        (["3405803781"], ""),
        (["host.example.org"], ""),
        (["203.0.113.5 10.1.1.1"], ""),
        (["fe80::1%eth0"], ""),
        (["203.0.113.5/32"], ""),
        ([], PROXY),
    ],
)
def test_x_forwarded_for_is_read_from_its_end(noted: list[str], caller: str):
    assert X_FORWARDED_FOR.caller_of(PROXY, noted) == caller


@pytest.mark.parametrize(
    ("noted", "caller"),
    [
        (["for=203.0.113.5"], "203.0.113.5"),
        (["For=203.0.113.5;proto=https;by=10.0.0.1"], "203.0.113.5"),
        (["proto=https ; for=203.0.113.5"], "203.0.113.5"),
        (['for="203.0.113.5:4711"'], "203.0.113.5"),
        (['for="[2001:db8:9::1]:4711"'], "2001:db8:9::1"),
        (['for="[2001:db8:9::1]"'], "2001:db8:9::1"),
        (["for=1.1.1.1, for=203.0.113.5"], "203.0.113.5"),
        (["for=1.1.1.1", "for=203.0.113.5, for=10.1.1.1"], "203.0.113.5"),
        (['for="1.1.1.1, for=10.0.0.1", for=203.0.113.5'], "203.0.113.5"),
        (['for=1.1.1.1;x="a,b\\",for=10.0.0.1", for=203.0.113.5'], "203.0.113.5"),
        (['for="203.0.113\\.5"'], "203.0.113.5"),
        (["for=203.0.113.5, for=unknown"], ""),
        (["for=203.0.113.5, for=_hidden"], ""),
        (["for=203.0.113.5, proto=https"], ""),
        (["for=203.0.113.5, "], ""),
        (["for=203.0.113.5;for=10.0.0.1"], ""),
        (["203.0.113.5"], ""),
        (['for="203.0.113.5'], ""),
        (["for = 203.0.113.5"], ""),
        (["for=203.0.113.5;;proto=http"], ""),
        ([], PROXY),
    ],
)
def test_forwarded_is_read_from_its_end(noted: list[str], caller: str):
    assert FORWARDED.caller_of(PROXY, noted) == caller


@pytest.mark.parametrize("peer", ["203.0.113.9", "::1", "11.0.0.1"])
def test_nobody_else_is_believed(peer: str):
    assert X_FORWARDED_FOR.caller_of(peer, ["10.0.0.1"]) == peer
    assert FORWARDED.caller_of(peer, ["for=10.0.0.1"]) == peer
    assert NO_PROXIES.caller_of(peer, ["10.0.0.1"]) == peer


def test_without_the_setting_a_proxy_is_the_caller():
    silent = TrustedProxies(NETWORKS)
    assert silent.caller_of(PROXY, ["203.0.113.5"]) == PROXY
