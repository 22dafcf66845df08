"""Page tokens belong to one query and need nothing of the process that made them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadPageTokenError
from app.http.pagination import page_token, query_fingerprint, read_page_token

QUERY = query_fingerprint("quotas", {"filter": ("user",), "strict": False})
POSITION = {"user": "alice", "client-id": None}


def refused(token: str, fingerprint: str = QUERY) -> bool:
    with pytest.raises(BadPageTokenError) as caught:
        read_page_token(token, fingerprint)
    (violation,) = caught.value.violations
    return (caught.value.code, violation.pointer) == ("bad-page-token", "page_token")


def test_a_token_gives_its_position_back():
    token = page_token(POSITION, QUERY)
    assert read_page_token(token, QUERY) == POSITION
    assert set(token) <= set(string.ascii_letters + string.digits + "-_")


def test_a_token_of_another_query_is_refused():
    token = page_token(POSITION, QUERY)
    assert refused(token, query_fingerprint("quotas", {"filter": (), "strict": False}))
    assert refused(token, query_fingerprint("audit", {"filter": ("user",), "strict": False}))


def test_every_changed_character_is_noticed():
    token = page_token(POSITION, QUERY)
    for index, character in enumerate(token):
        other = "A" if character != "A" else "B"
        assert refused(token[:index] + other + token[index + 1 :])
    assert refused(token + "A")
    assert refused(token[:-1])
    assert refused(token + "=")


@given(st.text(max_size=80))
def test_any_other_text_is_refused(text: str):
    assert refused(text)
