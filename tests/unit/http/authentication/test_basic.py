import base64
from dataclasses import replace
from typing import Any

import pytest
from starlette.datastructures import Headers

from app.domain.entities import Caller
from app.domain.errors import NotSentError
from app.http.authentication.authenticator import Presented
from app.http.authentication.basic import Basic
from app.http.errors import LoginFailedError, RateLimitedError, UnencryptedPasswordError
from app.http.rate_limits import MOST_FAILURES, LoginAttempts


class FakeLease:
    content: Any = None
    released = 0

    def release(self) -> None:
        self.released += 1


class FakeSessions:
    """Knows ``secret``; ``down`` is no broker at all. Remembers who came how often."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.open: set[tuple[str, str]] = set()

    def has(self, user: str, password: str) -> bool:
        return (user, password) in self.open

    async def lease(self, user: str, password: str) -> FakeLease:
        self.asked.append((user, password))
        if password == "down":
            raise NotSentError("Nobody answers.")
        if not password.startswith("secret"):
            raise LoginFailedError("No.")
        self.open.add((user, password))
        return FakeLease()


@pytest.fixture
def sessions() -> FakeSessions:
    return FakeSessions()


@pytest.fixture
def basic(sessions: FakeSessions) -> Basic:
    return Basic(sessions, LoginAttempts())


def header(user: str | bytes, password: str = "secret") -> str:  # noqa: S107
    name = user if isinstance(user, bytes) else user.encode()
    return "Basic " + base64.b64encode(name + b":" + password.encode()).decode()


def quote(value: str, peer: str = "127.0.0.1", *, is_encrypted: bool = False) -> Presented:
    return Presented(Headers({"authorization": value}), peer, peer, is_encrypted=is_encrypted)


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("alice", "secret"),
        ("alice", "secret:with:colons"),
        ("älice", "secretü"),
        ("CN=alice,OU=team", "secret=,"),
        ("team\u2028a", "secret"),
    ],
)
async def test_a_user_and_a_password_are_passed_on_as_they_are(
    basic: Basic, sessions: FakeSessions, user: str, password: str
) -> None:
    found = await basic.authenticate(quote(header(user, password)))
    assert sessions.asked == [(user, password)]
    assert found.caller == Caller(f"User:{user}", "127.0.0.1", "basic")


MALFORMED = {
    "no credentials": "Basic",
    "not base64": "Basic §§§",
    "broken padding": "Basic YWxpY2U6c2Vjcm",
    "a second word": "Basic YWxpY2U6c2VjcmV0 x",
    "no colon": "Basic " + base64.b64encode(b"alice").decode(),
    "no user": header(""),
    "no password": header("alice", ""),
    "not UTF-8": header(b"al\xffice"),
    "a NUL, which would end a field of PLAIN": header("alice\0admin"),
    "a NUL in the password": header("alice", "secret\0x"),
    "a line": header("alice\nadmin"),
    "a lone surrogate": header(b"al\xed\xa0\x80ice"),
    "the anonymous user": header("ANONYMOUS"),
    "everybody": header("*"),
    "blanks around": header(" alice "),
    "a name of 257 bytes": header("x" * 257),
    "a name of 23 KB": header("x" * 23_000),
}


@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_malformed_is_a_failed_login_and_reaches_no_broker(
    basic: Basic, sessions: FakeSessions, value: str
) -> None:
    presented = quote(value)
    assert basic.is_presented(presented)
    with pytest.raises(LoginFailedError):
        await basic.authenticate(presented)
    assert sessions.asked == []


async def test_two_headers_are_refused(basic: Basic, sessions: FakeSessions) -> None:
    lines = [(b"authorization", header(name).encode()) for name in ("alice", "bob")]
    presented = Presented(Headers(raw=lines), "127.0.0.1", "127.0.0.1")
    with pytest.raises(LoginFailedError):
        await basic.authenticate(presented)
    assert sessions.asked == []


@pytest.mark.parametrize("value", ["Bearer x", "Basics x", "", "Negotiate"])
def test_another_scheme_is_not_presented(basic: Basic, value: str) -> None:
    assert not basic.is_presented(quote(value))


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
async def test_this_machine_may_come_without_tls(basic: Basic, peer: str) -> None:
    assert await basic.authenticate(quote(header("alice"), peer))


@pytest.mark.parametrize("peer", ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "", "somewhere"])
async def test_others_may_not_and_their_password_is_not_looked_at(
    basic: Basic, sessions: FakeSessions, peer: str
) -> None:
    for value in (header("alice"), header("alice", "wrong"), "Basic §"):
        with pytest.raises(UnencryptedPasswordError):
            await basic.authenticate(quote(value, peer))
    assert sessions.asked == []


async def test_a_proxy_on_this_machine_says_for_itself_whether_its_caller_used_tls(
    basic: Basic, sessions: FakeSessions
) -> None:
    presented = replace(quote(header("alice")), address="10.0.0.1", is_from_proxy=True)
    with pytest.raises(UnencryptedPasswordError):
        await basic.authenticate(presented)
    assert sessions.asked == []
    caller = (await basic.authenticate(replace(presented, is_encrypted=True))).caller
    assert caller.host == "10.0.0.1"


async def test_others_may_over_tls(basic: Basic) -> None:
    found = await basic.authenticate(quote(header("alice"), "10.0.0.1", is_encrypted=True))
    assert found.caller.host == "10.0.0.1"


async def test_a_password_is_not_tried_a_sixth_time(basic: Basic, sessions: FakeSessions) -> None:
    for number in range(MOST_FAILURES):
        with pytest.raises(LoginFailedError):
            await basic.authenticate(quote(header("alice", f"wrong-{number}")))
    for password in ("wrong", "secret"):
        with pytest.raises(RateLimitedError):
            await basic.authenticate(quote(header("alice", password)))
    assert len(sessions.asked) == MOST_FAILURES


async def test_who_is_logged_in_stays_so_while_others_guess(
    basic: Basic, sessions: FakeSessions
) -> None:
    await basic.authenticate(quote(header("alice")))
    for _ in range(MOST_FAILURES):
        with pytest.raises(LoginFailedError):
            await basic.authenticate(quote(header("alice", "wrong")))
    assert await basic.authenticate(quote(header("alice")))


async def test_a_broker_that_is_down_is_no_failed_login(
    basic: Basic, sessions: FakeSessions
) -> None:
    for _ in range(3 * MOST_FAILURES):
        with pytest.raises(NotSentError):
            await basic.authenticate(quote(header("alice", "down")))
    assert await basic.authenticate(quote(header("alice")))
