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
        oidc_page_scope="openid offline_access",
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


def signed_in(guests: Visitors, issuer: str, user: str) -> Page:
    """Return the form for a new quota, for alice of the identity provider; a user is typed."""
    page = guests.visit("/ui/new", who=None)
    leave(page, issuer)
    page.keyboard.type("alice")
    page.keyboard.press("Enter")
    field(page, "User").fill(user)
    field(page, "producer_byte_rate").fill("1 MiB")
    return page


def end_token(page: Page, issuer: str, records: Provider) -> None:
    """Let an hour pass: the token of this tab has ended since."""
    ended = records.signed(issuer, "alice", within_s=-3000)
    page.evaluate("(token) => sessionStorage.setItem('token', token)", ended)


def test_a_token_that_has_ended_is_renewed_and_nobody_notices(
    guests: Visitors, open_site: RunningService, provider: tuple[str, Provider]
):
    issuer, records = provider
    page = signed_in(guests, issuer, "renewed")
    for value in (1, 2):  # the second time by the refresh token that came with the first
        end_token(page, issuer, records)
        field(page, "producer_byte_rate").fill(f"{value} MiB")
        button(page, "Apply").click()
        expect(row(page, "After", "producer_byte_rate")).to_contain_text(f"{value} MiB/s")
        assert values_of(open_site, "renewed") == {"producer_byte_rate": value * MIB}
    assert records.refused == []
    stored = page.evaluate("[Object.keys(sessionStorage), localStorage.length, document.cookie]")
    assert stored == [["token"], 0, ""]


def test_who_signs_in_again_finds_what_was_typed(
    guests: Visitors,
    open_site: RunningService,
    provider: tuple[str, Provider],
    monkeypatch: pytest.MonkeyPatch,
):
    issuer, records = provider
    monkeypatch.setattr(records, "gives_refresh_tokens", False)
    page = signed_in(guests, issuer, "kept")
    end_token(page, issuer, records)
    button(page, "Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("What you typed is still there.")
    with page.expect_popup() as opened:
        button(page, f"Sign in with {issuer.removeprefix('http://')}").click()
    opened.value.get_by_label("Name").fill("alice")
    opened.value.get_by_label("Name").press("Enter")
    expect(button(page, "Sign in")).to_have_count(0)
    expect(field(page, "User")).to_have_value("kept")
    button(page, "Apply").click()
    expect(row(page, "After", "producer_byte_rate")).to_contain_text("1 MiB/s")
    assert values_of(open_site, "kept") == {"producer_byte_rate": MIB}
    assert records.codes == {}


def test_a_refresh_token_that_is_refused_leads_to_signing_in(
    guests: Visitors, provider: tuple[str, Provider]
):
    issuer, records = provider
    page = signed_in(guests, issuer, "refused")
    records.refresh_tokens.clear()
    end_token(page, issuer, records)
    button(page, "Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("Your sign-in has ended")
    assert records.refused == ["refresh_token"]
    records.refused.clear()
    field(page, "Token").fill("alice")
    button(page, "Sign in").click()
    expect(button(page, "Sign in")).to_have_count(0)
    expect(field(page, "User")).to_have_value("refused")


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
