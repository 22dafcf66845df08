"""The query parameters of ``/analytics/…``."""

from typing import Final

from app.http.query_parameters import Kind, QueryParameter
from app.http.route_parameters import AUDIT_PARAMETERS, MAX_PAGE_SIZE

_PAGE_TOKEN: Final = next(one for one in AUDIT_PARAMETERS if one.name == "page_token")

_KEY: Final = QueryParameter(
    name="key", description="Only this quota key.", example="producer_byte_rate"
)
_ENTITY: Final = QueryParameter(
    name="entity",
    description=(
        "A condition in the grammar of `filter` of `GET /quotas`; it is met by the entity whose "
        "quota limits the bucket, or by the bucket's own user and client-id."
    ),
    kind=Kind.COMPONENT,
    repeats=True,
    example=["user=alice"],
)


def _page_size(default: int) -> QueryParameter:
    return QueryParameter(
        name="page_size",
        description="Rows in one page.",
        kind=Kind.INTEGER,
        default=default,
        minimum=1,
        maximum=MAX_PAGE_SIZE,
    )


def _period(since: str, until: str) -> tuple[QueryParameter, QueryParameter]:
    plus = "RFC 3339; a plus sign is written `%2B`."
    return (
        QueryParameter(
            name="since",
            description=f"{since} {plus}",
            kind=Kind.TIME,
            example="2026-11-20T00:00:00Z",
        ),
        QueryParameter(
            name="until",
            description=f"{until} {plus}",
            kind=Kind.TIME,
            example="2026-11-21T00:00:00Z",
        ),
    )


UTILIZATION_PARAMETERS: Final = (
    _KEY,
    _ENTITY,
    QueryParameter(
        name="min_util_p99",
        description="Only where p99 / limit is at least this; 0.8 is 80 % of the limit.",
        kind=Kind.NUMBER,
        example=0.8,
    ),
    *_period("Only days that end after this time.", "Only days that begin before this time."),
    _page_size(100),
    _PAGE_TOKEN,
)

INCIDENTS_PARAMETERS: Final = (
    _KEY,
    _ENTITY,
    *_period("Only what ends after this time.", "Only what begins before this time."),
    _page_size(100),
    _PAGE_TOKEN,
)

BUCKET_PARAMETERS: Final = (
    *_period("The earliest minute, included.", "The first minute that is too late."),
    _page_size(1440),
    _PAGE_TOKEN,
)

RUNS_PARAMETERS: Final = (_page_size(100), _PAGE_TOKEN)
