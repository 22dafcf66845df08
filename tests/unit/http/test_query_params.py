"""Query strings: how parameters, filters and page tokens are read, and what is refused."""

import string
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from app.domain.entities import (
    ALL_ENTITIES,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.domain.errors import BadPageTokenError, InvalidRequestError, UnreadableRequestError
from app.http.pagination import page_token, query_fingerprint, read_page_token
from app.http.query_params import (
    COMPONENT_SCHEMA,
    READ_INTEGER,
    Filter,
    Flag,
    QueryParameters,
    TimeParameter,
    openapi_parameters,
    parse_component,
    parse_filter,
    read_query,
)


class Parameters(QueryParameters):
    filter: Annotated[Filter, Field(description="Components.", examples=[["user=alice"]])] = ()
    has_key: Annotated[tuple[str, ...], Field(description="Keys.")] = ()
    strict: Annotated[Flag, Field(description="Strict.")] = False
    page_size: Annotated[
        Annotated[int, Field(ge=1, le=10_000), READ_INTEGER] | None, Field(description="Size.")
    ] = None
    since: Annotated[TimeParameter | None, Field(description="From.")] = None
    outcome: Annotated[Literal["applied", "no"] | None, Field(description="What.")] = None
    actor: Annotated[str | None, Field(description="Who.")] = None


def faults(query: bytes, error: type[Exception] = UnreadableRequestError) -> list[tuple[str, str]]:
    with pytest.raises(error) as caught:
        read_query(query, Parameters)
    return [(violation.pointer, violation.code) for violation in caught.value.violations]


def test_an_empty_query_has_the_defaults():
    assert read_query(b"", Parameters).model_dump() == {
        "filter": (),
        "has_key": (),
        "strict": False,
        "page_size": None,
        "since": None,
        "outcome": None,
        "actor": None,
    }


def test_each_kind_is_read():
    query = (
        b"filter=user=alice&strict=true&page_size=0010&filter=ip&outcome=applied&actor=&"
        b"since=2026-11-21T02:02:03.4567%2B01:00&"
    )
    assert read_query(query, Parameters).model_dump() == {
        "filter": ("user=alice", "ip"),
        "has_key": (),
        "strict": True,
        "page_size": 10,
        "since": datetime(2026, 11, 21, 1, 2, 3, 456700, UTC),
        "outcome": "applied",
        "actor": "",
    }


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_every_text_comes_through_percent_encoding(texts: list[str]):
    query = "&".join(f"has_key={quote(text, safe='')}" for text in texts)
    assert read_query(query.encode(), Parameters).has_key == tuple(texts)


def test_a_plus_is_a_blank_and_raw_utf_8_is_read():
    query = "has_key=a+b%2B\N{LATIN SMALL LETTER U WITH DIAERESIS}".encode()
    keys = ("a b+\N{LATIN SMALL LETTER U WITH DIAERESIS}",)
    assert read_query(query, Parameters).has_key == keys


def test_everything_that_cannot_be_read_is_listed_at_once():
    query = (
        b"strict=yes&page_size=1.0&since=yesterday&actor=a&actor=b&limit=3&filter=%ff&"
        b"page_token&bad%zz=1&Strict=true&filter=user:nobody&filter=&page_size=0"
    )
    assert sorted(faults(query)) == [
        ("Strict", "unknown-parameter"),
        ("actor", "repeated-parameter"),
        ("bad%zz", "bad-percent-encoding"),
        ("filter", "bad-percent-encoding"),
        ("filter", "unreadable-filter"),
        ("filter", "unreadable-filter"),
        ("limit", "unknown-parameter"),
        ("page_size", "repeated-parameter"),
        ("page_size", "wrong-type"),
        ("page_token", "unknown-parameter"),
        ("since", "wrong-type"),
        ("strict", "wrong-type"),
    ]


WRONG_TYPES = {
    "strict": ["", "True", "TRUE", "1", "0", "true%20", "yes"],
    "page_size": ["", "%2B1", "1_000", "%201", "1e3", "0x10", "%D9%A1", "--1"],
    "since": ["2026-11-21", "2026-11-21T01:02:03", "20261121T010203Z", "2026-13-01T00:00:00Z"],
}


def test_a_flag_is_true_or_false_an_integer_digits_and_a_time_whole(subtests: pytest.Subtests):
    for name, text in [(name, text) for name, texts in WRONG_TYPES.items() for text in texts]:
        with subtests.test(name=name, text=text):
            assert faults(f"{name}={text}".encode()) == [(name, "wrong-type")]


def test_zeros_before_an_integer_count_for_nothing():
    assert read_query(b"page_size=" + b"0" * 5000 + b"7", Parameters).page_size == 7


def test_a_number_out_of_range_breaks_a_rule(subtests: pytest.Subtests):
    for text in [
        "0",
        "-1",
        "10001",
        "9" * 5000,
        "-" + "9" * 5000,
        "0" * 5000,
        "-" + "0" * 5000 + "7",
    ]:
        with subtests.test(text=text):
            query = f"page_size={text}".encode()
            assert faults(query, InvalidRequestError) == [("page_size", "out-of-range")]


def test_a_filter_alone_is_judged_by_who_asks_it():
    assert read_query(b"filter=group=a", Parameters).filter == ("group=a",)


@given(st.binary(max_size=40))
def test_no_query_raises_anything_else(query: bytes):
    with suppress(UnreadableRequestError, InvalidRequestError):
        read_query(query, Parameters)


def test_the_table_documents_itself():
    filters, keys, strict, page_size, since, outcome, actor = openapi_parameters(Parameters)
    assert filters == {
        "name": "filter",
        "in": "query",
        "required": False,
        "description": "Components. For example `user=alice`.",
        "schema": {"type": "array", "items": COMPONENT_SCHEMA},
    }
    assert keys["schema"] == {"type": "array", "items": {"type": "string"}}
    assert strict["schema"] == {"type": "boolean", "default": False}
    assert page_size["schema"] == {"type": "integer", "minimum": 1, "maximum": 10_000}
    assert since["schema"] == {"type": "string", "format": "date-time"}
    assert outcome["schema"] == {"type": "string", "enum": ["applied", "no"]}
    assert actor["schema"] == {"type": "string"}


NAMES = st.text(st.characters(codec="utf-8"), max_size=30)
KINDS = st.sampled_from(["user", "client-id", "ip"])


def test_each_form_of_a_component_is_read(subtests: pytest.Subtests):
    for text, match_type, match in [
        ("user=alice", MatchType.EXACT, "alice"),
        ("user=", MatchType.EXACT, ""),
        ("user=a=b:c^d", MatchType.EXACT, "a=b:c^d"),
        ("user=<default>", MatchType.EXACT, "<default>"),
        ("user=:default", MatchType.EXACT, ":default"),
        ("user:default", MatchType.DEFAULT, None),
        ("user:any", MatchType.SPECIFIED, None),
        ("user", MatchType.SPECIFIED, None),
        ("user:absent", MatchType.ABSENT, None),
        ("user^=team-a-", MatchType.PREFIX, "team-a-"),
        ("user^==", MatchType.PREFIX, "="),
        ("user^=", MatchType.PREFIX, ""),
        ("user~=backfill", MatchType.CONTAINS, "backfill"),
        ("user~==~^:", MatchType.CONTAINS, "=~^:"),
    ]:
        with subtests.test(text=text, match=match):
            assert parse_component(text) == ClientQuotaFilterComponent("user", match_type, match)


@given(KINDS, NAMES)
def test_a_name_may_contain_anything(kind: str, name: str):
    assert parse_component(f"{kind}={name}") == ClientQuotaFilterComponent.of_entity(kind, name)
    prefix = ClientQuotaFilterComponent(kind, MatchType.PREFIX, name)
    assert parse_component(f"{kind}^={name}") == prefix


@given(NAMES)
def test_every_text_is_a_component_or_is_unreadable(text: str):
    component = parse_component(text)
    if component is not None:
        assert text.startswith(component.entity_type)
        assert not set(component.entity_type) & set("=:^~")


def test_a_component_outside_the_grammar_is_unreadable(subtests: pytest.Subtests):
    for text in ["", "user:", "user:Default", "user:any ", "user^team", "user^", "user~a"]:
        with subtests.test(text=text):
            assert parse_component(text) is None


def test_no_component_is_every_entity():
    assert parse_filter(()) == ALL_ENTITIES


def test_components_keep_their_order_and_strict_its_value():
    assert parse_filter(("client-id:default", "user=a"), strict=True) == ClientQuotaFilter(
        (
            ClientQuotaFilterComponent.of_default_entity("client-id"),
            ClientQuotaFilterComponent.of_entity("user", "a"),
        ),
        strict=True,
    )


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
