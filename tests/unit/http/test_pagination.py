"""Page tokens cannot be forged, moved to another query or kept for long."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import UnreadableRequestError
from app.http.page_tokens import PageTokens, query_fingerprint
from tests.testkit.virtual_time import ManualClock

QUERY = query_fingerprint("quotas", {"filter": ("user",), "strict": False})
POSITION = {"snapshot": "s1", "position": 10}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000.0)


@pytest.fixture
def tokens(clock: ManualClock) -> PageTokens:
    return PageTokens(b"secret", max_age_s=60.0, now=clock)


def refused(tokens: PageTokens, token: str, fingerprint: str = QUERY) -> bool:
    with pytest.raises(UnreadableRequestError) as caught:
        tokens.read(token, fingerprint)
    (violation,) = caught.value.violations
    return (caught.value.code, violation.pointer) == ("bad-page-token", "page_token")


def test_a_token_gives_its_position_back(tokens: PageTokens):
    token = tokens.make(POSITION, QUERY)
    assert tokens.read(token, QUERY) == POSITION
    assert set(token) <= set(string.ascii_letters + string.digits + "-_")


def test_another_process_with_the_same_secret_reads_it(tokens: PageTokens, clock: ManualClock):
    token = tokens.make(POSITION, QUERY)
    assert PageTokens(b"secret", now=clock).read(token, QUERY) == POSITION


def test_a_token_of_another_query_is_refused(tokens: PageTokens):
    token = tokens.make(POSITION, QUERY)
    assert refused(tokens, token, query_fingerprint("quotas", {"filter": (), "strict": False}))
    assert refused(
        tokens, token, query_fingerprint("audit", {"filter": ("user",), "strict": False})
    )


def test_a_token_of_another_secret_is_refused(tokens: PageTokens, clock: ManualClock):
    assert refused(tokens, PageTokens(b"other", now=clock).make(POSITION, QUERY))


def test_a_token_is_good_until_its_age_is_reached(tokens: PageTokens, clock: ManualClock):
    token = tokens.make(POSITION, QUERY)
    clock.now += 60.0
    assert tokens.read(token, QUERY) == POSITION
    clock.now += 0.001
    assert refused(tokens, token)


def test_a_token_from_the_future_is_refused(tokens: PageTokens, clock: ManualClock):
    token = tokens.make(POSITION, QUERY)
    clock.now -= 1.0
    assert refused(tokens, token)


def test_every_changed_character_is_noticed(tokens: PageTokens):
    token = tokens.make(POSITION, QUERY)
    for index, character in enumerate(token):
        other = "A" if character != "A" else "B"
        assert refused(tokens, token[:index] + other + token[index + 1 :])
    assert refused(tokens, token + "A")
    assert refused(tokens, token[:-1])
    assert refused(tokens, token + "=")


@given(st.text(max_size=80))
def test_any_other_text_is_refused(text: str):
    assert refused(PageTokens(b"secret"), text)
