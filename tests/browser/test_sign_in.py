"""Signing in with a password of the brokers, and at an identity provider."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app.localdev.kafka import LocalKafka, LocalTls
from app.localdev.postgres import LocalPostgres
from tests.browser.conftest import MIB, Visitors, visitors_of
from tests.browser.page_calls import button, field, row, values_of
from tests.testkit.accounts import set_scram_users
from tests.testkit.identity_provider import Provider, identity_provider
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, running_service

CLIENT = "kafka-quotas"
PASSWORD = "pässword:with odd characters"


@pytest.fixture(scope="module")
def provider() -> Iterator[tuple[str, Provider]]:
    """The identity provider."""
    with identity_provider(CLIENT) as running:
        yield running


@pytest.fixture(scope="module")
def open_site(
    broker: LocalKafka,
    tls: LocalTls,
    postgres: LocalPostgres,
    provider: tuple[str, Provider],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    """A service that takes tokens, passwords of the brokers, and tokens of the provider."""
    folder = tmp_path_factory.mktemp("open")
    _, url = migrated_database(postgres, "sign-in-page")
    set_scram_users(broker.bootstrap_servers, {"alice": PASSWORD})
    with running_service(
        folder,
        broker.bootstrap_servers,
        url,
        basic_sasl_mechanism="SCRAM-SHA-512",
        basic_bootstrap_servers=broker.address("SASL_SSL"),
        kafka_ssl_ca_file=str(tls.truststore_file),
        oidc_issuer=provider[0],
        oidc_audience=CLIENT,
    ) as service:
        yield service


@pytest.fixture
def guests(
    chrome: Browser, open_site: RunningService, provider: tuple[str, Provider]
) -> Iterator[Visitors]:
    """Tabs on that service, which may go to the provider, too."""
    with visitors_of(chrome, open_site, (provider[0],)) as visitors:
        yield visitors


def test_a_password_of_the_brokers_signs_in_and_is_forgotten_by_a_new_page(
    guests: Visitors, open_site: RunningService
):
    page = guests.visit("/ui/new", who=None)
    expect(field(page, "User")).to_be_focused()
    button(page, "Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Write your user and password, or a token.")
    field(page, "User").fill("alice")
    field(page, "Password").fill("wrong")
    button(page, "Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not accept this user")
    field(page, "Password").fill(PASSWORD)
    button(page, "Sign in").click()
    expect(page.get_by_text("User:alice").first).to_be_visible()
    field(page, "User").fill("by-password")
    field(page, "producer_byte_rate").fill("1 MiB")
    button(page, "Apply").click()
    expect(page.get_by_text("The cluster has these values now.")).to_be_visible()
    assert values_of(open_site, "by-password") == {"producer_byte_rate": MIB}
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0]
    page.reload()
    expect(field(page, "Password")).to_have_value("")


def leave(page: Page, issuer: str) -> None:
    button(page, f"Sign in with {issuer.removeprefix('http://')}").click()
    expect(page.get_by_label("Name")).to_be_focused()


def test_a_code_of_the_identity_provider_becomes_a_token(
    guests: Visitors, provider: tuple[str, Provider]
):
    issuer, records = provider
    page = guests.visit("/ui/audit?action=drift", who=None)
    leave(page, issuer)
    assert "code_challenge_method=S256" in page.url
    page.keyboard.type("alice")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/audit?action=drift")
    expect(page.get_by_text("User:alice").first).to_be_visible()
    assert page.evaluate("Object.keys(sessionStorage)") == ["token"]
    assert (records.codes, records.refused) == ({}, [])
    elsewhere = {url.split("?")[0] for url in guests.urls if url.startswith(issuer)}
    assert elsewhere == {f"{issuer}/authorize", f"{issuer}/token"}
    page.get_by_role("link", name="Quotas", exact=True).click()
    expect(row(page, "Quotas", "Produce rate")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()


def test_a_refusal_and_an_answer_that_nobody_asked_for_sign_nobody_in(
    guests: Visitors, provider: tuple[str, Provider]
):
    issuer, records = provider
    page = guests.visit("/ui/quotas", who=None)
    leave(page, issuer)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("refused: access_denied")
    code = records.code({"client_id": CLIENT, "redirect_uri": page.url}, "root")
    page.goto(f"{guests.site.url}/ui/signed-in?state=forged&code={code}")
    expect(page.get_by_role("alert")).to_contain_text("did not begin in this tab")
    assert code in records.codes
    assert page.evaluate("sessionStorage.length") == 0
    records.codes.clear()


def test_only_a_service_with_a_provider_lets_its_page_call_elsewhere(
    open_site: RunningService, site: RunningService, provider: tuple[str, Provider]
):
    with_provider = open_site.api().get("/ui/quotas").headers["content-security-policy"]
    assert with_provider.split("; ")[-1] == f"connect-src 'self' {provider[0]}"
    alone = site.api().get("/ui/quotas").headers["content-security-policy"]
    assert "connect-src" not in alone
    assert site.api().get("/ui/sign-in.json").json() == {"methods": ["bearer-token"], "oidc": None}
