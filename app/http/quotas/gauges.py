"""``GET /metrics/quotas``: the stored limits as gauges, to stand beside the brokers' rates."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from app.domain.broker_metrics import tag_of_client_id, tag_of_user
from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity
from app.http.guards import actor_of, may_describe, services_of
from app.http.middleware import context_of
from app.http.query_params import (
    READ_INTEGER,
    Filter,
    QueryParameters,
    StrictQuery,
    parse_filter,
)
from app.http.quotas.formats import without_thread
from app.http.rate_limits import Turn
from app.http.responses import problems, text_answer
from app.http.route import feature_router
from app.service.queries.describe import DescribeQuery, Entry
from app.service.runtime.tasks import off_loop

LIMIT: Final = "kafka_client_quota_limit"
LEFT_OUT: Final = "kafka_client_quota_limits_left_out"
TAGS: Final = "kafka_client_quota_tags"

_TYPES: Final = (("user", "user"), ("client-id", "client_id"), ("ip", "ip"))
"""An entity type and its label."""

LABELS: Final = {
    LIMIT: ("key", *chain.from_iterable((label, f"{label}_default") for _, label in _TYPES)),
    LEFT_OUT: (),
    TAGS: ("user", "client_id", "user_tag", "client_id_tag"),
}
"""The labels of each gauge."""

_MEDIA_TYPE: Final = "text/plain; version=0.0.4"
_AGE_MS: Final = 5_000
_USUAL_LIMIT: Final = 10_000
_MOST_SERIES: Final = 100_000
_LINES_OF_CHUNK: Final = 500
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class GaugeParameters(QueryParameters):
    """The query of ``GET /metrics/quotas``."""

    filter: Annotated[Filter, Field(examples=[["user^=team-a-"]])] = ()
    """A condition on the entity, as of `GET /quotas`; several are ANDed."""
    has_key: Annotated[tuple[str, ...], Field(examples=[["producer_byte_rate"]])] = ()
    """Only entities that have this quota key; several: any of them."""
    limit: Annotated[int, Field(ge=1, le=_MOST_SERIES), READ_INTEGER] = _USUAL_LIMIT
    """How many series of `kafka_client_quota_limit` there are at most;
    `kafka_client_quota_limits_left_out` says how many more there would be."""


class Series(NamedTuple):
    """A stored value: whose, of which key."""

    entity: ClientQuotaEntity
    key: str
    value: float


router = feature_router("operation")


@router.get(
    "/metrics/quotas",
    summary="Show the limits as metrics",
    dependencies=[Depends(may_describe)],
    response_class=Response,
    responses={
        200: text_answer("Prometheus' text format.", "text/plain", "quota-gauges"),
        **problems(),
    },
)
async def show_quota_gauges(
    request: Request, query: Annotated[GaugeParameters, Depends(StrictQuery(GaugeParameters))]
) -> Response:
    """Return each stored value as a gauge, in Prometheus' text format, from the image.

    The image is at most five seconds old. Where brokers encode a name in their metrics,
    `kafka_client_quota_tags` has its tags, so that rules can join both.
    """
    asked = DescribeQuery(parse_filter(query.filter, strict=False), query.has_key, _AGE_MS)
    services = services_of(request)
    read = await services.describe.read(actor_of(request), asked)
    async with services.limits.turns.of(Turn.READ, context_of(request).principal or ""):
        listing = await services.describe.select(asked, read)
        chunks = await off_loop(len(listing.entries), exposition, listing.entries, query.limit)
    return StreamingResponse(without_thread(chunks), media_type=_MEDIA_TYPE)


def exposition(entries: Sequence[Entry], limit: int) -> list[bytes]:
    """Return chunks of Prometheus' text: as many series as may be, and how many are left out."""
    series = [
        Series(entity, key, value)
        for entity, values in entries
        for key, value in sorted(values.items())
    ]
    included = series[:limit]
    lines = chain(
        _family(LIMIT, "What is stored; the unit is that of the key.", map(_limit_line, included)),
        _family(
            LEFT_OUT,
            "Stored values that the limit of this answer leaves out.",
            [f"{LEFT_OUT} {len(series) - len(included)}"],
        ),
        _family(
            TAGS,
            "The tags of brokers' metrics, where they differ from the stored names.",
            _tag_lines(item.entity for item in included),
        ),
    )
    return [
        "".join(f"{line}\n" for line in chunk).encode()
        for chunk in iter(lambda: list(islice(lines, _LINES_OF_CHUNK)), [])
    ]


def _family(name: str, text: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    yield from lines


def _limit_line(series: Series) -> str:
    names = series.entity.as_dict()
    labels = [("key", series.key)]
    for entity_type, label in _TYPES:
        is_default = entity_type in names and names[entity_type] is DEFAULT_NAME
        labels += [
            (label, names.get(entity_type) or ""),
            (f"{label}_default", "true" if is_default else "false"),
        ]
    return f"{LIMIT}{{{_labels(labels)}}} {_number(series.value)}"


def _tag_lines(entities: Iterable[ClientQuotaEntity]) -> Iterator[str]:
    """Yield the tags of each pair of names that has other tags, once."""
    pairs = {
        (names.get("user") or "", names.get("client-id") or ""): None
        for names in (entity.as_dict() for entity in entities)
    }
    for user, client_id in pairs:
        tags = (tag_of_user(user), tag_of_client_id(client_id))
        if tags != (user, client_id):
            labels = zip(LABELS[TAGS], (user, client_id, *tags), strict=True)
            yield f"{TAGS}{{{_labels(labels)}}} 1"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
