"""What the page is told of an identity provider: its endpoints, or that it does not answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest

from app.http.authentication.discovery import PageClient, SignIn, SignInEndpoints
from tests.unit.http.authentication.tokens import ISSUER

GOOD = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize?tenant=1",
    "token_endpoint": "https://tokens.example.org:8443/realm/token",
}


@dataclass
class FakeProvider:
    """Answers with a document, or with nothing; counts the requests."""

    document: object = field(default_factory=lambda: dict(GOOD))
    asked: int = 0
    now: float = 0.0

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        assert str(request.url) == f"{ISSUER}/.well-known/openid-configuration"
        if self.document is None:
            raise httpx.ConnectError("nobody listens")
        return httpx.Response(200, json=self.document)


@pytest.fixture
def fake() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
async def sign_in(fake: FakeProvider) -> AsyncIterator[SignIn]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(fake.answer)) as client:
        page = PageClient("kafka-quotas", "openid", "id_token")
        running = SignIn(ISSUER, page, client, monotonic=lambda: fake.now)
        yield running
        await running.close()


async def test_the_endpoints_are_asked_for_once_in_five_minutes(
    fake: FakeProvider, sign_in: SignIn
):
    found = await sign_in.endpoints()
    assert found == SignInEndpoints(GOOD["authorization_endpoint"], GOOD["token_endpoint"])
    assert found is not None
    assert found.token_origin == "https://tokens.example.org:8443"
    fake.now = 299
    assert (await sign_in.endpoints(), fake.asked) == (found, 1)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {**GOOD, "issuer": "https://login.example.org"},
        {**GOOD, "token_endpoint": "http://tokens.example.org/token"},
        {**GOOD, "authorization_endpoint": 7},
        {name: GOOD[name] for name in ("issuer", "token_endpoint")},
    ],
)
async def test_a_provider_that_cannot_be_used_is_asked_again_after_a_while(
    fake: FakeProvider, sign_in: SignIn, document: object
):
    fake.document = document
    assert (await sign_in.endpoints(), fake.asked) == (None, 1)
    fake.now, fake.document = 29, dict(GOOD)
    assert (await sign_in.endpoints(), fake.asked) == (None, 1)
    fake.now = 30
    assert await sign_in.endpoints() is not None
