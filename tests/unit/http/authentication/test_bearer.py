"""Bearer tokens: who is admitted, who is not, and what happens when the file changes."""

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from app.domain.entities import Caller
from app.domain.errors import UnauthenticatedError
from app.http.authentication.authenticator import Presented
from app.http.authentication.basic import Basic
from app.http.authentication.bearer import Bearer, BearerTokens, TokensFileError, read_tokens
from app.http.authentication.certificates import ClientCertificates
from app.http.authentication.principal_mapping import PrincipalMapping
from app.http.errors import InvalidTokenError
from app.http.guards import authenticate
from app.http.problems import problem_headers
from app.http.rate_limits import LoginAttempts
from app.service.auth.sessions import Sessions
from tests.testkit.virtual_time import ManualClock

EXPIRES = datetime(2027, 1, 1, tzinfo=UTC)


class Clocks:
    def __init__(self) -> None:
        self.wall = datetime(2026, 11, 21, tzinfo=UTC)
        self.monotonic = ManualClock(0.0)

    def now(self) -> datetime:
        return self.wall


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


ALICE_TOKEN = "alice-token"


def entry(principal: str = "User:alice", token: str = ALICE_TOKEN, **other: Any) -> dict:
    values = {"token_sha256": digest(token), "expires_at": "2027-01-01T00:00:00Z"}
    return {"principal": principal, **values, **other}


def write(path: Path, content: Any) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))


class Authentication:
    """What a request meets; nothing here has to wait."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._methods = [Bearer(tokens)]

    def authenticate(self, headers: Headers, peer: str) -> Caller:
        return asyncio.run(authenticate(Presented(headers, peer, peer), self._methods))


@pytest.fixture
def tokens(path: Path, clocks: Clocks) -> Authentication:
    write(path, [entry(), entry("User:CN=bob,O=X", "bob.token~+/=")])
    return Authentication(BearerTokens(path, now=clocks.now, monotonic=clocks.monotonic))


def headers(*values: str) -> Headers:
    return Headers(raw=[(b"authorization", value.encode("latin-1")) for value in values])


def refused(tokens: Authentication, *values: str) -> type[UnauthenticatedError]:
    with pytest.raises(UnauthenticatedError) as caught:
        tokens.authenticate(headers(*values), "127.0.0.1")
    return caught.type


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_of_the_file_admits_its_principal(tokens: Authentication, scheme: str):
    caller = tokens.authenticate(headers(f"{scheme} alice-token"), "127.0.0.1")
    assert caller == Caller("User:alice", "127.0.0.1", "bearer-token")


@pytest.mark.parametrize("name", ["x" * 257, "ä" * 129, "User:alice", " uSeR :alice"])
def test_a_principal_that_nobody_may_have_is_refused_and_others_are_not(
    path: Path, clocks: Clocks, name: str
):
    write(path, [entry(f"User:{name}"), entry("User:" + "ä" * 128, "longest")])
    tokens = Authentication(BearerTokens(path, now=clocks.now, monotonic=clocks.monotonic))
    assert refused(tokens, f"Bearer {ALICE_TOKEN}") is InvalidTokenError
    assert tokens.authenticate(headers("Bearer longest"), "::1").principal == "User:" + "ä" * 128


def test_each_token_has_its_own_principal(tokens: Authentication):
    caller = tokens.authenticate(headers("Bearer  bob.token~+/="), "127.0.0.1")
    assert caller.principal == "User:CN=bob,O=X"


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
    ],
)
def test_the_peer_is_named_as_java_names_it(tokens: Authentication, peer: str, host: str):
    assert tokens.authenticate(headers("Bearer alice-token"), peer).host == host


def test_a_caller_without_an_address_is_not_admitted(tokens: Authentication):
    with pytest.raises(UnauthenticatedError):
        tokens.authenticate(headers("Bearer alice-token"), "")


OTHER_CREDENTIALS = [
    *("", "Bearer", "Bearer ", "Bearer =", "Bearer other", "Bearer alice-toke", "alice-token"),
    *("Bearer alice-token alice-token", "Bearer alice-token,alice-token", "Bearer\talice-token"),
    *("Bearer alice-t\xf6ken", "Basic YWxpY2U6YWxpY2U=", f"Bearer {digest('alice-token')}"),
    "Bearer " + "x" * 10_000,
]


def test_any_other_credential_is_refused(tokens: Authentication, subtests: pytest.Subtests):
    for value in OTHER_CREDENTIALS:
        with subtests.test(value=value):
            assert refused(tokens, value) is InvalidTokenError


def test_there_is_one_credential(tokens: Authentication):
    assert refused(tokens) is UnauthenticatedError
    assert refused(tokens, "Bearer alice-token", "Bearer alice-token") is InvalidTokenError


def test_a_401_names_every_scheme_that_is_taken_the_refusing_one_first(path: Path):
    write(path, [entry()])
    basic = Basic(cast("Sessions", None), LoginAttempts())
    certificate = ClientCertificates(PrincipalMapping("DEFAULT"))
    methods = [Bearer(BearerTokens(path)), basic, certificate]
    offered = 'Basic realm="kafka-quota-service", charset="UTF-8"'
    for values, challenge in (
        ([], f"Bearer, {offered}, Certificate"),
        (["Bearer x"], f'Bearer error="invalid_token", {offered}, Certificate'),
        (["Basic x"], f"{offered}, Bearer, Certificate"),
    ):
        with pytest.raises(UnauthenticatedError) as caught:
            asyncio.run(authenticate(Presented(headers(*values), "::1", "::1"), methods))
        assert problem_headers(caught.value)["WWW-Authenticate"] == challenge


def test_a_token_is_good_until_its_expiry(tokens: Authentication, clocks: Clocks):
    clocks.wall = EXPIRES - timedelta(microseconds=1)
    assert tokens.authenticate(headers("Bearer alice-token"), "127.0.0.1")
    clocks.wall = EXPIRES
    assert refused(tokens, "Bearer alice-token") is InvalidTokenError


def test_a_changed_file_is_followed_within_a_second(
    tokens: Authentication, clocks: Clocks, path: Path
):
    write(path, [entry("User:carol", "carol-token-of-another-length")])
    assert tokens.authenticate(headers("Bearer alice-token"), "127.0.0.1")
    clocks.monotonic.now += 1.0
    assert refused(tokens, "Bearer alice-token") is InvalidTokenError
    caller = tokens.authenticate(headers("Bearer carol-token-of-another-length"), "::1")
    assert caller.principal == "User:carol"


def test_a_bad_file_is_logged_once_and_the_tokens_read_before_stay_good(
    tokens: Authentication, clocks: Clocks, path: Path
):
    write(path, '[{"principal": "User:mallory"')
    with capture_logs() as lines:
        for _ in range(3):
            clocks.monotonic.now += 1.0
            assert tokens.authenticate(headers("Bearer alice-token"), "127.0.0.1")
    assert [line["log_level"] for line in lines] == ["error"]
    write(path, [])
    clocks.monotonic.now += 1.0
    assert refused(tokens, "Bearer alice-token") is InvalidTokenError


def test_a_file_that_vanished_is_logged_and_the_tokens_stay_good(
    tokens: Authentication, clocks: Clocks, path: Path
):
    path.unlink()
    clocks.monotonic.now += 1.0
    with capture_logs() as lines:
        assert tokens.authenticate(headers("Bearer alice-token"), "127.0.0.1")
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "not JSON"),
        ("{}", "This must be an array, not an object"),
        ("[1]", "/0 This must be an object"),
        ([entry(), {"principal": "User:x"}], "/1/expires_at The field expires_at is missing"),
        ([entry(token_sha="x")], "/0 takes principal, token_sha256, expires_at, each once"),
        ([entry(principal=None)], "/0/principal This must be a string"),
        ([entry("alice")], "/0/principal this is not a principal"),
        ([entry("User:")], "/0/principal this is not a principal"),
        ([entry("User:a\nb")], "is not a principal"),
        ([entry(":alice")], "is not a principal"),
        ([entry("User:ANONYMOUS")], "/0/principal User:ANONYMOUS cannot have a token"),
        ([entry("User:*")], "/0/principal User:* cannot have a token"),
        ([entry(token_sha256="abc")], "/0/token_sha256 this is not a SHA-256"),
        ([entry(token_sha256="g" * 64)], "/0/token_sha256 this is not a SHA-256"),
        ([entry(expires_at="2027-01-01")], "/0/expires_at not a time"),
        ([entry(expires_at=None)], "/0/expires_at This must be a string"),
        ([entry(), entry("User:bob")], "/1/token_sha256 the token is there twice"),
        (
            '[{"principal":"User:a","principal":"User:b"}]',
            "/0/principal this is there more than once",
        ),
    ],
)
def test_a_bad_file_stops_the_start_and_names_the_entry(path: Path, content: Any, fault: str):
    write(path, content)
    with pytest.raises(TokensFileError) as caught:
        BearerTokens(path)
    text = str(caught.value)
    assert fault in text
    assert str(path) in text
    assert ("  " in text, ".." in text) == (False, False), "one sentence, as people write it"


SECRET = "s3cret-token-in-the-wrong-place"


@pytest.mark.parametrize(
    "content",
    [
        *([entry(**{name: SECRET})] for name in ("principal", "token_sha256", "expires_at")),
        *([{**entry(), **more}] for more in ({SECRET: 1}, {"principal": {SECRET: SECRET}})),
        *([SECRET], {SECRET: entry()}, f'[{{"{SECRET}": 1, "{SECRET}": 2}}]', SECRET),
    ],
)
def test_a_fault_repeats_nothing_that_stands_in_the_file(path: Path, content: Any):
    write(path, content)
    with pytest.raises(TokensFileError) as caught:
        read_tokens(path)
    assert SECRET not in str(caught.value)


def test_every_bad_entry_is_named(path: Path):
    write(path, [entry("a"), entry("User:b", "t2"), entry("c", "t3", expires_at="x")])
    with pytest.raises(TokensFileError) as caught:
        read_tokens(path)
    for pointer in ("/0/principal", "/2/principal", "/2/expires_at"):
        assert pointer in str(caught.value)
    assert "/1/" not in str(caught.value)


def test_a_missing_file_stops_the_start(path: Path):
    with pytest.raises(TokensFileError, match="No such file"):
        BearerTokens(path)


def test_upper_case_digests_are_read(path: Path):
    write(path, [entry(token_sha256=digest("t").upper())])
    tokens = BearerTokens(path, now=lambda: EXPIRES - timedelta(days=1))
    assert tokens.principal("t") == "User:alice"
