"""Query strings: how parameters, filters and page tokens are read, and what is refused."""

import string
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter

from app.domain.entities import (
    ALL_ENTITIES,
    ANY_TYPE,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.domain.errors import BadPageTokenError, InvalidRequestError, UnreadableRequestError
from app.http.query_params import (
    COMPONENT_SCHEMA,
    READ_INTEGER,
    Filter,
    Flag,
    QueryParameters,
    TimeParameter,
    openapi_parameters,
    page_token,
    parse_component,
    parse_filter,
    query_fingerprint,
    read_page_token,
    read_query,
)
from tests.unit.http.fake_service import FakeService, refused


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
        b"filter=user=alice&strict=true&page_size=" + b"0" * 5000 + b"10&"
        b"filter=ip&outcome=applied&actor=&"
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


NINES, ZEROS, LONG = "9" * 5000, "0" * 5000, "A" * 20_000

QUERIES: list[tuple[str, str, int, str]] = [
    ("/quotas", "user=alice", 400, "user unknown-parameter"),
    ("/quotas", "Strict=true", 400, "Strict unknown-parameter"),
    ("/quotas", "=x", 400, "unknown-parameter"),
    ("/quotas/capabilities", "x", 400, "x unknown-parameter"),
    ("/quotas/resolve", "user=a&client_id=b", 400, "client_id unknown-parameter"),
    ("/quotas/resolve", "user=a&%75ser=b", 400, "user repeated-parameter"),
    ("/quotas", "strict=true&strict=true", 400, "strict repeated-parameter"),
    ("/quotas", "strict strict= strict=yes strict=True strict=TRUE", 400, "strict wrong-type"),
    ("/quotas", "strict=1 strict=0 strict=true%20", 400, "strict wrong-type"),
    ("/quotas", "page_size= page_size=ten page_size=1_000", 400, "page_size wrong-type"),
    ("/quotas", "page_size=+10 page_size=%2B1 page_size=--1", 400, "page_size wrong-type"),
    ("/quotas", "page_size=%201 page_size=%D9%A1", 400, "page_size wrong-type"),
    ("/quotas", "page_size=1e3 page_size=1.0 page_size=0x10", 400, "page_size wrong-type"),
    ("/quotas", "page_size=0 page_size=-1 page_size=10001", 422, "page_size out-of-range"),
    ("/quotas", f"page_size={NINES} page_size=-{NINES}", 422, "page_size out-of-range"),
    ("/quotas", f"page_size={ZEROS} page_size=-{ZEROS}7", 422, "page_size out-of-range"),
    ("/audit", f"page_size=0 page_size=10001 page_size={NINES}", 422, "page_size out-of-range"),
    ("/quotas", "max_age_ms=1.5", 400, "max_age_ms wrong-type"),
    ("/quotas/resolve", "user=a&max_age_ms=-1", 422, "max_age_ms out-of-range"),
    ("/quotas/resolve", "user=alice&usage=yes", 400, "usage wrong-type"),
    ("/quotas", "filter=user%3 filter=user=%zz", 400, "filter bad-percent-encoding"),
    ("/quotas", "filter=%E9 filter=%ED%A0%80 filter=%C0%80", 400, "filter bad-percent-encoding"),
    ("/quotas", "%FF=1", 400, "%FF bad-percent-encoding"),
    ("/quotas", "bad%zz=1", 400, "bad%zz bad-percent-encoding"),
    ("/quotas", "filter= filter=user: filter=user:named", 400, "filter unreadable-filter"),
    ("/quotas", "filter=user:all filter=user:Default", 400, "filter unreadable-filter"),
    ("/quotas", "filter=user:default%20 filter=user:any%20", 400, "filter unreadable-filter"),
    ("/quotas", "filter=user:default:x filter=user~a", 400, "filter unreadable-filter"),
    ("/quotas", "filter=user^ filter=user^team filter=user^x=", 400, "filter unreadable-filter"),
    ("/quotas", "filter=user=a&filter=user:", 400, "filter unreadable-filter"),
    ("/quotas/resolve", "", 422, "user identity-without-user"),
    ("/quotas/resolve", "client-id=b", 422, "user identity-without-user"),
    ("/quotas/resolve", "ip=192.0.2.1&user=a", 422, "user invalid-identity-combination"),
    ("/quotas/resolve", "ip=localhost ip= ip=10.0.0.0/8", 422, "ip not-an-ip-address"),
    ("/audit", "since=yesterday since=2026-11-21", 400, "since wrong-type"),
    ("/audit", "since=2026-11-21T01:02:03 since=20261121T010203Z", 400, "since wrong-type"),
    ("/audit", "since=9999-12-31T23:59:59-23:59", 400, "since wrong-type"),
    ("/audit", "until=2026-02-30T00:00:00Z until=2026-13-01T00:00:00Z", 400, "until wrong-type"),
    ("/audit", "until=0001-01-01T00:00:00%2B23:59", 400, "until wrong-type"),
    ("/audit", "outcome=done", 422, "outcome unknown-word"),
    ("/audit", "action=delete action=ALTER", 422, "action unknown-word"),
    ("/audit", "actor=User:a&actor=User:b", 400, "actor repeated-parameter"),
    ("/audit", "entity_type=user", 400, "entity_type unknown-parameter"),
    ("/audit", "entity=user:nobody entity=user:all&page_size=0", 400, "entity unreadable-filter"),
    ("/audit", "entity=group=a", 422, "entity unknown-entity-type"),
    ("/audit", "entity=user=a&entity=user=b", 422, "entity repeated-entity-type"),
    ("/audit", "entity=user=a&entity=ip:any", 422, "entity invalid-filter-combination"),
    ("/readyz", "for=read", 422, "for unknown-word"),
    ("/readyz", "for=write&for=write", 400, "for repeated-parameter"),
    (
        "/quotas",
        "x=1&strict=2&strict=3&page_size=a&filter=%FF",
        400,
        (
            "x unknown-parameter, strict repeated-parameter, strict wrong-type, "
            "page_size wrong-type, filter bad-percent-encoding"
        ),
    ),
    (
        "/quotas",
        "filter=user:all&filter=:&strict=2&page_size=0",
        400,
        "filter unreadable-filter, filter unreadable-filter, strict wrong-type",
    ),
    (
        "/quotas",
        "filter=group=a&filter=ip&filter=user&page_size=0",
        422,
        "page_size out-of-range, filter unknown-entity-type, filter invalid-filter-combination",
    ),
    ("/analytics/utilization", "nonsense=1", 400, "nonsense unknown-parameter"),
    ("/analytics/utilization", "min_util_p99=high", 400, "min_util_p99 wrong-type"),
    ("/analytics/utilization", "min_util_p99=nan", 400, "min_util_p99 wrong-type"),
    ("/analytics/utilization", "min_util_p99=1e999", 422, "min_util_p99 out-of-range"),
    ("/analytics/utilization", "since=yesterday", 400, "since wrong-type"),
    ("/analytics/utilization", "entity=user:nobody", 400, "entity unreadable-filter"),
    ("/analytics/utilization", "key=a&key=b", 400, "key repeated-parameter"),
    ("/analytics/utilization", "page_token=forged", 400, "page_token bad-page-token"),
    ("/analytics/incidents", "min_util_p99=1", 400, "min_util_p99 unknown-parameter"),
    ("/analytics/incidents", "page_size=0", 422, "page_size out-of-range"),
    ("/analytics/buckets/1", "key=a", 400, "key unknown-parameter"),
    ("/analytics/runs", "state=queued", 400, "state unknown-parameter"),
    ("/analytics/runs/x", "page_size=1", 400, "page_size unknown-parameter"),
    *(
        (path, f"page_token={token}", 400, "page_token bad-page-token")
        for path in ("/quotas", "/audit")
        for token in ("", "x", "AAAA", "e30", "e30.e30", "%00", "..", "-1", "0" * 1000, LONG)
    ),
]
"""A path, queries, the status, and each violation as its parameter and its code."""


async def test_a_query_that_cannot_be_answered_is_refused(
    service: FakeService, subtests: pytest.Subtests
):
    for path, queries, status, violations in QUERIES:
        for query in queries.split() or [""]:
            with subtests.test(path=path, query=query[:80]):
                answer = await service.get(f"{path}?{query}")
                refused(service, answer, status, violations)


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


@given(NAMES)
def test_a_text_in_some_name_may_be_anything(text: str):
    component = ClientQuotaFilterComponent(ANY_TYPE, MatchType.CONTAINS, text)
    assert parse_component(f"any~={text}") == component


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
ANY = TypeAdapter[Any](Any)


def is_bad(token: str, fingerprint: str = QUERY) -> bool:
    with pytest.raises(BadPageTokenError) as caught:
        read_page_token(token, fingerprint, ANY)
    (violation,) = caught.value.violations
    return (caught.value.code, violation.pointer) == ("bad-page-token", "page_token")


def test_a_token_gives_its_position_back():
    token = page_token(POSITION, QUERY)
    assert read_page_token(token, QUERY, ANY) == POSITION
    assert set(token) <= set(string.ascii_letters + string.digits + "-_")


def test_a_token_of_another_query_is_refused():
    token = page_token(POSITION, QUERY)
    assert is_bad(token, query_fingerprint("quotas", {"filter": (), "strict": False}))
    assert is_bad(token, query_fingerprint("audit", {"filter": ("user",), "strict": False}))


def test_every_changed_character_is_noticed():
    token = page_token(POSITION, QUERY)
    for index, character in enumerate(token):
        other = "A" if character != "A" else "B"
        assert is_bad(token[:index] + other + token[index + 1 :])
    assert is_bad(token + "A")
    assert is_bad(token[:-1])
    assert is_bad(token + "=")


@given(st.text(max_size=80))
def test_any_other_text_is_refused(text: str):
    assert is_bad(text)
