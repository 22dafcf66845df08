"""The query parameters of each route: these tables read them and document them."""

from typing import Final

from app.domain.alterations import Outcome
from app.http.query_parameters import Kind, QueryParameter
from app.http.request_rules import MAX_AGE_MS
from app.service.reading.resolve import DEFAULT_RESOLVE_AGE_MS

MAX_PAGE_SIZE: Final = 10_000

AUDIT_ACTIONS: Final = ("alter", "validate", "denied", "revert", "apply_plan", "drift")
"""What an audit row can be about."""

NO_PARAMETERS: Final[tuple[QueryParameter, ...]] = ()

_PAGE_TOKEN: Final = QueryParameter(
    name="page_token",
    description=(
        "The `next_page_token` of the page before. It belongs to one query, so its conditions "
        "stay as they were."
    ),
)

DESCRIBE_PARAMETERS: Final = (
    QueryParameter(
        name="filter",
        description=(
            "A condition on the entity; several are ANDed, none means every entity. `user=alice` "
            "is the exact name, `user^=team-a-` the beginning of a name, `user:default` the "
            "default entity, `user:any` or `user` any name and the default, `user:absent` "
            "entities without the type; likewise for `client-id` and `ip`. The first of `=`, `:` "
            "and `^` ends the type, so a name needs nothing but URL encoding. Each type at most "
            "once; `ip` stands beside no other type."
        ),
        kind=Kind.COMPONENT,
        repeats=True,
        example=["user=alice", "client-id:any"],
    ),
    QueryParameter(
        name="strict",
        description=(
            "Only entities with exactly the filter's types; `:absent` components do not count as "
            "types. Without a component nothing matches, as in the protocol."
        ),
        kind=Kind.BOOLEAN,
        default=False,
    ),
    QueryParameter(
        name="has_key",
        description="Only entities that have this quota key; several: any of them.",
        repeats=True,
        example=["producer_byte_rate"],
    ),
    QueryParameter(
        name="max_age_ms",
        description=(
            "How old the answer may be, in milliseconds. 0 asks the broker now; more allows an "
            "image that old, and `as_of` tells its time."
        ),
        kind=Kind.INTEGER,
        default=0,
        maximum=MAX_AGE_MS,
    ),
    QueryParameter(
        name="page_size",
        description=(
            "Entities in one page. Each page is of its own `as_of`; an entity that is there all "
            "the while is listed exactly once. Without it the whole answer is sent, all of one "
            "`as_of`, or with `page_token` a page of 1000."
        ),
        kind=Kind.INTEGER,
        minimum=1,
        maximum=MAX_PAGE_SIZE,
        example=1000,
    ),
    _PAGE_TOKEN,
)

RESOLVE_PARAMETERS: Final = (
    QueryParameter(
        name="user",
        description=(
            "The user: the principal's name without its type. Needed unless `ip` is given; an "
            "unauthenticated connection is the user `ANONYMOUS`."
        ),
        example="alice",
    ),
    QueryParameter(
        name="client-id",
        description="The client-id; missing or empty is a connection without one.",
        example="etl",
    ),
    QueryParameter(
        name="ip",
        description="A literal IPv4 or IPv6 address, instead of `user` and `client-id`.",
    ),
    QueryParameter(
        name="max_age_ms",
        description=(
            "How old the image may be that the answer comes from, in milliseconds; 0 reads the "
            "broker now."
        ),
        kind=Kind.INTEGER,
        default=DEFAULT_RESOLVE_AGE_MS,
        maximum=MAX_AGE_MS,
    ),
    QueryParameter(
        name="explain",
        description="List every level tried for each key, with the reason where it cannot apply.",
        kind=Kind.BOOLEAN,
        default=False,
    ),
    QueryParameter(
        name="usage",
        description="Show beside each quota how the bucket spent its last day.",
        kind=Kind.BOOLEAN,
        default=False,
    ),
)

AUDIT_PARAMETERS: Final = (
    QueryParameter(
        name="entity",
        description="A condition on the entity, in the grammar of `filter` of `GET /quotas`.",
        kind=Kind.COMPONENT,
        repeats=True,
        example=["user=alice", "client-id:default"],
    ),
    QueryParameter(
        name="actor",
        description=(
            "The principal who asked, as Kafka prints it. Another one than oneself needs the "
            "`audit` permission."
        ),
        example="User:ci",
    ),
    QueryParameter(
        name="since",
        description="The earliest time, included. RFC 3339; a plus sign is written `%2B`.",
        kind=Kind.TIME,
        example="2026-11-21T00:00:00Z",
    ),
    QueryParameter(
        name="until",
        description="The first time that is too late. RFC 3339; a plus sign is written `%2B`.",
        kind=Kind.TIME,
        example="2026-11-22T00:00:00Z",
    ),
    QueryParameter(
        name="outcome",
        description="What became of the entity's alteration.",
        kind=Kind.WORD,
        words=tuple(outcome.value for outcome in Outcome),
    ),
    QueryParameter(
        name="action",
        description="What was asked for.",
        kind=Kind.WORD,
        words=AUDIT_ACTIONS,
    ),
    QueryParameter(
        name="page_size",
        description="Rows in one page.",
        kind=Kind.INTEGER,
        default=100,
        minimum=1,
        maximum=MAX_PAGE_SIZE,
    ),
    _PAGE_TOKEN,
)

READYZ_PARAMETERS: Final = (
    QueryParameter(
        name="for",
        description="`write` asks whether alterations can be taken; without it, whether reads can.",
        kind=Kind.WORD,
        words=("write",),
    ),
)
