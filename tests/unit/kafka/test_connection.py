"""How a broker is connected to: configuration, SASL, and connections that it has ended."""

import asyncio
import base64
import hashlib
import hmac
import secrets
import threading
from typing import Any

import pytest

from app.kafka.config import Address, KafkaSettings, SaslMechanism, SecurityProtocol, ssl_context
from app.kafka.connection import BrokerLease, ConnectionPool, Purpose
from app.kafka.handshake import SaslError, sasl_exchange
from app.kafka.quota_messages import decoded


def test_the_bootstrap_servers_are_a_list_of_host_and_port():
    settings = KafkaSettings("a:9092, b.example:19092,[::1]:9094")
    assert settings.addresses == (("a", 9092), ("b.example", 19092), ("::1", 9094))


def test_bootstrap_servers_that_name_no_port_are_refused(subtests: pytest.Subtests):
    for text in ["", " , ", "a", "a:", ":9092", "a:port", "a:9092;b:9092"]:
        with subtests.test(text=text), pytest.raises(ValueError, match="bootstrap server"):
            KafkaSettings(text)


def test_settings_that_could_never_connect_are_refused(subtests: pytest.Subtests):
    for mechanism, login in [(None, "me"), (SaslMechanism.PLAIN, "")]:
        with subtests.test(login=login), pytest.raises(ValueError, match="SASL needs"):
            KafkaSettings("a:9092", SecurityProtocol.SASL_SSL, mechanism, login, login)


def test_the_password_is_not_in_the_repr():
    assert "pencil" not in repr(settings("PLAIN"))


def test_an_unencrypted_protocol_has_no_tls_context():
    assert ssl_context(KafkaSettings("a:9092")) is None


def test_a_certificate_file_that_is_missing_is_an_error_at_once():
    settings = KafkaSettings(
        "a:9092", security_protocol=SecurityProtocol.SSL, ssl_ca_file="/no/such/file.pem"
    )
    with pytest.raises(OSError, match="No such file"):
        ssl_context(settings)


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
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism(mechanism),
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


class Connection:
    """A connection as far as the pool goes."""

    def __init__(self) -> None:
        self.idle = self.quiet = True
        self.expires_at: float | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def abort(self) -> None:
        """End."""
        if not self.lost.done():
            self.lost.set_result(None)


def pool_with(losses: list[str]) -> ConnectionPool:
    async def dial(_: Address) -> Any:
        return Connection()

    return ConnectionPool(("broker", 9092), dial, lambda: losses.append("lost"))


async def lease(pool: ConnectionPool) -> BrokerLease:
    slot = pool.slots[Purpose.READ]
    await slot.acquire()
    return await pool.lease(slot)


async def test_an_idle_connection_that_ends_is_reported():
    losses: list[str] = []
    pool = pool_with(losses)
    first = await lease(pool)
    first.release()
    first.connection.abort()
    await asyncio.sleep(0)
    assert (losses, pool.open, pool.idle) == (["lost"], 0, 0)


async def test_a_connection_that_ended_unnoticed_is_reported_before_another_is_opened():
    losses: list[str] = []
    pool = pool_with(losses)
    first: Any = await lease(pool)
    first.release()
    first.connection.quiet = False
    assert (await lease(pool)).connection is not first.connection
    assert losses == ["lost"]


async def test_a_connection_that_the_pool_ends_is_not_reported():
    losses: list[str] = []
    pool = pool_with(losses)
    first: Any = await lease(pool)
    first.connection.expires_at = 0.0
    first.release()
    assert (await lease(pool)).connection is not first.connection
    await asyncio.sleep(0)
    assert (losses, pool.open) == ([], 1)


def reading_thread(payload: bytearray, version: int) -> int:
    return threading.get_ident()


@pytest.mark.parametrize(("size", "on_the_loop"), [(100, True), (1_000_000, False)])
async def test_a_large_answer_is_read_in_a_thread(size: int, *, on_the_loop: bool):
    where = await decoded(reading_thread, bytearray(size), 1)
    assert (where == threading.get_ident()) is on_the_loop
