"""The three readings of an address; the vectors were taken from Java 17 and 21."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.addresses import canonical_ip, enforced_address, java_host_text

CANONICAL = [
    ("10.0.0.1", "10.0.0.1"),
    ("0.0.0.0", "0.0.0.0"),
    ("255.255.255.255", "255.255.255.255"),
    ("::1", "::1"),
    ("::", "::"),
    ("0:0:0:0:0:0:0:1", "::1"),
    ("0000:0000:0000:0000:0000:0000:0000:0001", "::1"),
    ("2001:DB8::A", "2001:db8::a"),
    ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
    ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
    ("::ffff:10.0.0.1", "10.0.0.1"),
    ("::FFFF:a00:1", "10.0.0.1"),
    ("::1.2.3.4", "::102:304"),
    ("64:ff9b::1.2.3.4", "64:ff9b::102:304"),
]

NOT_AN_ADDRESS = [
    *("", " ", " 10.0.0.1", "10.0.0.1 ", "10.0.0.1\n", "::1\n", "::1.2.3.4\n", "1.2.3.4\x00"),
    *("localhost", "broker-1.example.com", "<default>", "\u0661.2.3.4", "\ud800"),
    *("10.0.0.0/8", "2001:db8::/32", "::1/128", "fe80::1%eth0", "fe80::1%1", "fe80::1%"),
    *("01.2.3.4", "1.2.3.04", "1.2.3", "1.2", "16909060", "0x7f.0.0.1", "1.2.3.256"),
    *("1.2.3.4.5", "1.2.3.4.", "1.2.3.4:9092", "[::1]", "[1.2.3.4]", "::00001", ":::"),
    *("1::2::3", "1:2:3:4:5:6:7:8:9", "::ffff:01.2.3.4", "::ffff:1.2.3"),
]

ENFORCED = [
    *CANONICAL,
    ("1.2.3", "1.2.0.3"),
    ("1.2.65535", "1.2.255.255"),
    ("127.1", "127.0.0.1"),
    ("1.16777215", "1.255.255.255"),
    ("1", "0.0.0.1"),
    ("16909060", "1.2.3.4"),
    ("4294967295", "255.255.255.255"),
    ("010.001.002.003", "10.1.2.3"),
    ("000000000000001", "0.0.0.1"),
    ("[::1]", "::1"),
    ("[0:0:0:0:0:0:0:1]", "::1"),
    ("[::ffff:1.2.3.4]", "1.2.3.4"),
    ("00000::00001", "::1"),
    ("::0ffff:1.2.3.4", "1.2.3.4"),
    ("::ffff:01.2.3.4", "1.2.3.4"),
    ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
    ("fe80::1%5", "fe80::1"),
    ("[fe80::1%5]", "fe80::1"),
    ("fe80::1%2147483647", "fe80::1"),
]

LOOKED_UP_BY_EACH_NODE_OR_REFUSED = [
    *("", "localhost", "broker-1.example.com", "10.0.0.0/8", " 1.2.3.4", "1.2.65536", "1.16777216"),
    *("4294967296", "0000000000000001", "1.256.1.1", "1..2", "1.", "0x7f000001", "\u0661.2.3.4"),
    *("[1.2.3.4]", "[]", "[", "[::1", "::1]", "[[::1]]", "::fffff", "::900000", "900000::1"),
    *("::1.2.3", "::ffff:256.1.1.1", "1:2:3:4:5::1.526.30.4", "::1.2.3.4\n", "1:2:3:4:5:6:7:8::"),
    *("fe80::1%", "fe80::1%eth0", "fe80::1%2147483648", "fe80::1%" + "9" * 5000, "[fe80::1]%5"),
    *("::ffff:1.2.3.4%5", "1.2.3.4%1"),
]

JAVA_TEXT = [
    ("127.0.0.1", "127.0.0.1"),
    ("::1", "0:0:0:0:0:0:0:1"),
    ("::", "0:0:0:0:0:0:0:0"),
    ("2001:0DB8::00a0:1", "2001:db8:0:0:0:0:a0:1"),
    ("::ffff:10.0.0.5", "10.0.0.5"),
    ("::1.2.3.4", "0:0:0:0:0:0:102:304"),
    ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
    ("fe80::1%2", "fe80:0:0:0:0:0:0:1"),
]


def test_a_literal_address_has_one_canonical_text(subtests: pytest.Subtests) -> None:
    for text, canonical in CANONICAL:
        with subtests.test(text=text, canonical=canonical):
            assert canonical_ip(text) == canonical


def test_what_is_not_a_plain_literal_has_no_canonical_text(subtests: pytest.Subtests) -> None:
    for text in NOT_AN_ADDRESS:
        with subtests.test(text=text):
            assert canonical_ip(text) is None


def test_a_broker_enforces_a_stored_spelling_as_java_reads_it(subtests: pytest.Subtests) -> None:
    for text, address in ENFORCED:
        with subtests.test(text=text, address=address):
            assert enforced_address(text) == address


def test_a_name_that_java_would_look_up_or_refuse_has_no_address(subtests: pytest.Subtests) -> None:
    for text in LOOKED_UP_BY_EACH_NODE_OR_REFUSED:
        with subtests.test(text=text):
            assert enforced_address(text) is None


def test_a_host_is_written_as_java_prints_it(subtests: pytest.Subtests) -> None:
    for address, text in JAVA_TEXT:
        with subtests.test(address=address, text=text):
            assert java_host_text(address) == text


def test_a_host_that_is_not_an_address_is_an_error(subtests: pytest.Subtests) -> None:
    for address in ["", "localhost", "1.2.3", "[::1]", "10.0.0.0/8"]:
        with subtests.test(repr(address)), pytest.raises(ValueError, match="not a literal"):
            java_host_text(address)


@given(st.ip_addresses(v=6))
def test_every_ipv6_spelling_leads_back_to_one_text(address: ipaddress.IPv6Address) -> None:
    canonical = str(address.ipv4_mapped or address)
    spellings = [address.exploded, address.compressed, address.compressed.upper()]
    assert {canonical_ip(spelling) for spelling in spellings} == {canonical}
    assert {enforced_address(f"[{spelling}]") for spelling in spellings} == {canonical}
    assert canonical_ip(java_host_text(canonical)) == canonical


@given(st.ip_addresses(v=4))
def test_every_ipv4_short_form_leads_back_to_one_text(address: ipaddress.IPv4Address) -> None:
    a, b, c, d = address.packed
    spellings = [f"{a}.{b}.{c * 256 + d}", f"{a}.{int(address) % 2**24}", str(int(address))]
    assert {enforced_address(spelling) for spelling in spellings} == {str(address)}
    assert java_host_text(f"::ffff:{address}") == str(address)


@given(st.text(max_size=40))
def test_any_text_is_judged_without_an_error(text: str) -> None:
    canonical = canonical_ip(text)
    assert canonical is None or enforced_address(text) == canonical
