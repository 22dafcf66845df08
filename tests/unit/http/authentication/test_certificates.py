"""Client certificates, as TLS shows them."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.x509.oid import NameOID

from app.http.authentication.certificates import ClientCertificates
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.errors import InvalidCertificateError
from tests.testkit.certificates import Authority, Subject, person

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = datetime(2026, 12, 31, tzinfo=UTC)
NOW = datetime(2026, 11, 21, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority(begins=BEGINS, ends=ENDS)


def judge(rules: str = "DEFAULT", now: datetime = NOW) -> ClientCertificates:
    return ClientCertificates(PrincipalMapping(rules), lambda: now)


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
    certificates = ClientCertificates(PrincipalMapping("DEFAULT"), lambda: clock[0])
    der = authority.sign(person("alice")).der
    assert certificates.principal(der)
    clock[0] = ENDS + SECOND
    assert "expired" in refused(certificates, der)


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
