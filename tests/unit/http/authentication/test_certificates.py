"""Client certificates: by TLS, and in headers from a trusted proxy."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from cryptography.x509.oid import NameOID

from app.http.authentication.certificates import ClientCertHeader, ClientCertificates
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.errors import InvalidCertificateError
from tests.testkit.certificates import Authority, Subject, person
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

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = datetime(2026, 12, 31, tzinfo=UTC)
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority(begins=BEGINS, ends=ENDS)


def judge(rules: str = "DEFAULT", now: datetime = NOW, *issuers: Authority) -> ClientCertificates:
    certificates = [issuer.own.certificate for issuer in issuers]
    return ClientCertificates(PrincipalMapping(rules), certificates, lambda: now)


def refused(certificates: ClientCertificates, der: bytes) -> str:
    with pytest.raises(InvalidCertificateError) as caught:
        certificates.principal(der)
    return caught.value.detail


def test_the_principal_is_the_name_as_java_writes_it(authority: Authority):
    der = authority.sign(person("alice")).der
    assert judge().principal(der) == "User:CN=alice,O=Example,C=DE"


def test_the_rules_make_a_user_of_it(authority: Authority):
    der = authority.sign(person("Alice")).der
    assert judge("RULE:^CN=(.*?),.*$/$1/L").principal(der) == "User:alice"
    assert refused(judge("RULE:^CN=bob,.*$/bob/"), der) == (
        "No mapping rule fits the certificate's subject."
    )
    assert "256 bytes" in refused(judge(f"RULE:^CN=(.*?),.*$/$1{'x' * 252}/"), der)


@pytest.mark.parametrize(
    ("now", "good"),
    [(BEGINS - SECOND, False), (BEGINS, True), (ENDS, True), (ENDS + SECOND, False)],
)
def test_it_is_good_from_its_first_day_to_its_last(
    authority: Authority, now: datetime, *, good: bool
):
    der = authority.sign(person("alice")).der
    if good:
        assert judge("DEFAULT", now).principal(der).startswith("User:CN=alice")
    else:
        assert "expired" in refused(judge("DEFAULT", now), der)


def test_a_certificate_that_was_good_before_is_judged_again_each_time(authority: Authority):
    clock = [NOW]
    certificates = ClientCertificates(PrincipalMapping("DEFAULT"), (), lambda: clock[0])
    der = authority.sign(person("alice")).der
    assert certificates.principal(der)
    clock[0] = ENDS + SECOND
    assert "expired" in refused(certificates, der)


def test_only_accepted_issuers_count(authority: Authority):
    other = Authority(begins=BEGINS, ends=ENDS)
    mine, theirs = authority.sign(person("alice")).der, other.sign(person("alice")).der
    pinned = judge("DEFAULT", NOW, authority)
    assert pinned.principal(mine) == "User:CN=alice,O=Example,C=DE"
    assert refused(pinned, theirs) == "The certificate is of no accepted issuer."
    assert judge("DEFAULT", NOW, other, authority).principal(mine)


def test_what_an_expired_issuer_signed_is_no_longer_good():
    expired = Authority(begins=BEGINS, ends=NOW - SECOND)
    der = expired.sign(person("alice"), ends=ENDS).der
    assert judge().principal(der)
    assert "expired" in refused(judge("DEFAULT", NOW, expired), der)


def test_a_certificate_that_was_changed_is_of_no_issuer(authority: Authority):
    der = authority.sign(person("alice")).der
    changed = der.replace(b"alice", b"admin")
    assert judge().principal(changed) == "User:CN=admin,O=Example,C=DE"
    assert "no accepted issuer" in refused(judge("DEFAULT", NOW, authority), changed)


@pytest.mark.parametrize(
    "subject",
    [(), *(((NameOID.COMMON_NAME, f"al{end}ice"),) for end in "\n\x7f\u0085")],
    ids=["empty", "two lines", "delete", "next line"],
)
def test_a_subject_that_nobody_may_have_is_refused(authority: Authority, subject: Subject):
    assert refused(judge(), authority.sign(subject).der)


def test_no_rule_makes_a_principal_that_nobody_may_have(
    authority: Authority, subtests: pytest.Subtests
):
    for user in ["ANONYMOUS", "*", " alice", "alice ", "User:alice", "user: a", "a" * 257]:
        with subtests.test(user=user):
            assert refused(judge(f"RULE:^.*$/{user}/"), authority.sign(person("alice")).der)


def test_a_damaged_certificate_is_refused(authority: Authority, subtests: pytest.Subtests):
    for at in range(0, 320, 37):
        with subtests.test(at=at):
            der = authority.sign(person("alice")).der
            for damaged in (der[:at], der + der[at : at + 1], b"", b"0"):
                assert "cannot be read" in refused(judge(), damaged)


@pytest.fixture
def behind() -> Proxied:
    return Proxied(HERE, ClientCertHeader.CLIENT_CERT)


@pytest.fixture
def behind_envoy() -> Proxied:
    return Proxied(HERE, ClientCertHeader.XFCC)


async def test_a_certificate_in_a_trusted_proxy_s_header_is_its_caller_s(behind: Proxied):
    assert (await behind.get(("Client-Cert", GOOD))).status == 200
    assert (await behind.get(("Client-Cert", f"  {GOOD} "))).status == 200
    labels = {"method": "proxy-certificate", "result": "accepted", "reason": ""}
    assert behind.service.count("authn_total", **labels) == 2
    assert (await behind.get(("Client-Cert", sequence(OTHER.der)))).status == 403


GOOD_ELEMENTS = [
    XFCC,
    f"By=spiffe://cluster/service;Hash={DIGEST};{XFCC}",
    f'Hash={DIGEST.upper()};Subject="CN=x\\"y,O=a;b";URI=;DNS=a;DNS=b;{XFCC}',
    f"cert={quote(BOB.pem, safe='')}",
    f"Chain={quote(AUTHORITY.own.pem)};{XFCC}",
    f'By="a";{XFCC.replace("Cert", "CERT")}',
]


async def test_envoy_s_header_is_read(behind_envoy: Proxied, subtests: pytest.Subtests):
    for element in GOOD_ELEMENTS:
        with subtests.test(element=element):
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


async def test_a_header_that_cannot_be_read_is_nobody(
    behind: Proxied, behind_envoy: Proxied, subtests: pytest.Subtests
):
    for front, header, values in [
        (behind, "Client-Cert", BAD_VALUES),
        (behind_envoy, "X-Forwarded-Client-Cert", BAD_ELEMENTS),
    ]:
        for name, value in values.items():
            with subtests.test(header=header, name=name):
                answer = await front.get((header, value))
                assert (answer.status, answer.document["code"]) == (401, "invalid-certificate")
        labels = {"method": "proxy-certificate", "result": "refused"}
        refusals = front.service.count("authn_total", reason="invalid-certificate", **labels)
        assert refusals == len(values)


async def test_several_credentials_are_refused(
    behind: Proxied, behind_envoy: Proxied, subtests: pytest.Subtests
):
    alone = Proxied(HERE, ClientCertHeader.CLIENT_CERT, takes_tokens=False)
    good, envoy = ("Client-Cert", GOOD), "X-Forwarded-Client-Cert"
    basic = "Basic Ym9iOmI="
    for front, headers in [
        *((behind, [good, ("Client-Cert", value)]) for value in (GOOD, "")),
        *((behind, [("Client-Cert", f"{GOOD}{more}")]) for more in (f",{GOOD}", ", ")),
        *((behind, [good, ("Authorization", value)]) for value in ("Bearer bob", basic)),
        *(
            (alone, [good, ("Authorization", value)])
            for value in ("Bearer bob", basic, "Negotiate x", "")
        ),
        (behind_envoy, [(envoy, XFCC), (envoy, XFCC)]),
        *((behind_envoy, [(envoy, f"{first},{XFCC}")]) for first in (XFCC, 'Subject="a"')),
    ]:
        with subtests.test(headers=headers):
            answer = await front.get(*headers)
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
