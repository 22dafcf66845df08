import base64
import hashlib
import hmac
import secrets

import pytest

from app.kafka.configuration import KafkaSettings
from app.kafka.sasl import SaslError, sasl_exchange

# The example of RFC 7677 section 3.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def settings(mechanism: str, username: str = "user") -> KafkaSettings:
    return KafkaSettings(
        "localhost:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=username,
        sasl_password="pencil",
    )


@pytest.fixture
def fixed_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: CLIENT_NONCE)


def test_plain_sends_name_and_password_and_is_done():
    exchange = sasl_exchange(settings("PLAIN"))
    assert next(exchange) == b"\0user\0pencil"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_scram_follows_the_example_of_the_standard(fixed_nonce: None):
    exchange = sasl_exchange(settings("SCRAM-SHA-256"))
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def test_scram_with_sha_512_proves_the_password_by_sha_512(fixed_nonce: None):
    exchange = sasl_exchange(settings("SCRAM-SHA-512"))
    next(exchange)
    final = exchange.send(SERVER_FIRST)
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", salt, 4096)
    signed = b",".join((b"n=user,r=" + CLIENT_NONCE.encode(), SERVER_FIRST, final.split(b",p=")[0]))
    server_key = hmac.digest(salted, b"Server Key", "sha512")
    signature = base64.b64encode(hmac.digest(server_key, signed, "sha512"))
    with pytest.raises(StopIteration):
        exchange.send(b"v=" + signature)


def test_scram_escapes_a_name_with_a_comma_and_an_equals_sign(fixed_nonce: None):
    exchange = sasl_exchange(settings("SCRAM-SHA-256", username="CN=a,O=b"))
    assert next(exchange) == b"n,,n=CN=3Da=2CO=3Db,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    "answer",
    [
        b"r=somebodyelse,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=99999999999999999999"),
        SERVER_FIRST.replace(b"i=4096", b"i=many"),
        SERVER_FIRST.replace(b"s=W22Z", b"s=*"),
        b"\xff\xfe",
        b"",
    ],
)
def test_a_first_answer_that_cannot_be_trusted_ends_the_exchange(fixed_nonce: None, answer: bytes):
    exchange = sasl_exchange(settings("SCRAM-SHA-256"))
    next(exchange)
    with pytest.raises(SaslError):
        exchange.send(answer)


@pytest.mark.parametrize("answer", [b"v=AAAA", b"e=other-error", b""])
def test_a_broker_that_does_not_know_the_password_is_not_trusted(fixed_nonce: None, answer: bytes):
    exchange = sasl_exchange(settings("SCRAM-SHA-256"))
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(SaslError, match="could not prove"):
        exchange.send(answer)
