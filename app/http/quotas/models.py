"""Documents of ``GET /quotas`` and ``GET /quotas/capabilities``."""

from collections.abc import Collection
from typing import Annotated, Any, Final

from pydantic import MISSING, BeforeValidator, Field, WithJsonSchema

from app.domain.entities import ENTITY_TYPES, EntityType
from app.domain.quota_keys import Scope
from app.http.models import (
    API_VERSION,
    ClusterId,
    Entity,
    EntityKey,
    NextPageToken,
    QuotaValues,
    ResponseModel,
    StoredValue,
    Time,
    all_of_the_keys,
)
from app.http.query_params import (
    MAX_PAGE_SIZE,
    READ_INTEGER,
    Filter,
    Flag,
    PageToken,
    QueryParameters,
)

OLDEST_IMAGE_MS: Final = 2**31 - 1
"""The largest ``max_age_ms``: whoever asks for it takes any image there is."""


MaxAgeMs = Annotated[
    int,
    Field(ge=0, le=OLDEST_IMAGE_MS),
    READ_INTEGER,
    Field(
        description=(
            "How old the answer may be, in milliseconds. 0 asks the broker now; more allows an "
            "image that old, and `as_of` tells its time."
        )
    ),
]


class DescribeParameters(QueryParameters):
    """The query of ``GET /quotas``."""

    filter: Annotated[Filter, Field(examples=[["user=alice", "client-id:any"]])] = ()
    """A condition on the entity; several are ANDed, none means every entity. `user=alice` is the
    exact name, `user^=team-a-` the beginning of a name, `user~=backfill` a text in it in any case,
    `user:default` the default entity, `user:any` or `user` any name and the default, `user:absent`
    entities without the type; likewise for `client-id` and `ip`. The first of `=`, `:`, `^` and `~`
    ends the type, so a name needs nothing but URL encoding. Each type at most once; `ip` stands
    beside no other type."""
    strict: Flag = False
    """Only entities with exactly the filter's types; `:absent` components do not count as types.
    Without a component nothing matches, as in the protocol."""
    has_key: Annotated[tuple[str, ...], Field(examples=[["producer_byte_rate"]])] = ()
    """Only entities that have this quota key; several: any of them."""
    max_age_ms: MaxAgeMs = 0
    page_size: Annotated[
        Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE), READ_INTEGER] | None, Field(examples=[1000])
    ] = None
    """Entities in one page. Each page is of its own `as_of`; an entity that is there all the while
    is listed exactly once. Without it the whole answer is sent, all of one `as_of`, or with
    `page_token` a page of 1000."""
    page_token: PageToken = None


class Quota(ResponseModel):
    """One entity with its values."""

    entity: Entity
    entity_key: EntityKey
    values: QuotaValues


class QuotaOfEntity(Quota):
    """One entity with its values, at that time."""

    cluster_id: ClusterId
    as_of: Time


class QuotaListing(ResponseModel):
    """The quotas of the entities that match."""

    cluster_id: ClusterId
    as_of: Time
    quotas: list[Quota]
    """Sorted by user, client-id and ip: absent before default before names, names by code point."""
    next_page_token: NextPageToken
    total: Annotated[int, Field(ge=0)] | MISSING = MISSING
    """How many entities match; with pages only."""


class DocumentedQuota(ResponseModel):
    """One entity of a document."""

    entity: Entity
    values: QuotaValues


class QuotaDocument(ResponseModel):
    """The document of export, plan and apply."""

    apiVersion: Annotated[str, WithJsonSchema({"const": API_VERSION})]  # noqa: N815
    quotas: list[DocumentedQuota]


QUOTA_LINES: Final = "One `Quota` in JSON on each line, in the order of `QuotaListing`."
QUOTA_TABLE: Final = (
    "Columns `user_kind`, `client_id_kind`, `ip_kind` (`name`, `default` or `absent`), `user`, "
    "`client-id`, `ip`, `key`, `value`; one row for each value. A cell that begins with one of "
    "`= + - @ '` or a tab has one leading `'`, which a reader takes off again. RFC 4180."
)


def _in_order(kinds: Collection[EntityType]) -> list[EntityType]:
    return [kind for kind in ENTITY_TYPES if kind in kinds]


class KeyRule(ResponseModel):
    """What a quota key limits, and how."""

    unit: str
    """Of the value, such as `bytes/s`."""
    scope: Scope
    """Who counts: each broker on its own, or the cluster."""
    entity_types: Annotated[list[EntityType], BeforeValidator(_in_order)]
    """The types that entities with this key are made of."""
    integral: bool
    """Whether a fraction is refused."""
    minimum: Annotated[
        StoredValue,
        WithJsonSchema({"type": "number", "description": "The smallest value accepted."}),
    ]
    maximum: Annotated[
        StoredValue,
        WithJsonSchema({"type": "number", "description": "The largest value accepted."}),
    ]


class BrokerFacts(ResponseModel):
    """Which brokers this service works with, and what the one in use reported."""

    oldest: str
    """The oldest release that has the quota interface."""
    certified: str
    """The newest release that the tests run against."""
    describe_api_version: int | None
    """The newest DescribeClientQuotas of the broker in use; null: none."""
    alter_api_version: int | None
    """The newest AlterClientQuotas of the broker in use; null: none."""
    metadata_version: int | None
    """The finalized level of `metadata.version`; null: not reported."""


def _positive(description: str) -> Any:
    return Field(ge=1, description=description)


class RequestLimits(ResponseModel):
    """How much one request may ask for."""

    body_bytes: Annotated[int, _positive("A request's body.")]
    changes_per_request: Annotated[int, _positive("Changed keys in one alteration.")]
    encoded_bytes_per_request: Annotated[int, _positive("Encoded records of one alteration.")]
    name_bytes: Annotated[int, _positive("A name, in bytes of UTF-8.")]
    identities_per_request: Annotated[int, _positive("Identities resolved at once.")]
    reason_characters: Annotated[int, _positive("The reason of an alteration.")]
    wait_ms: Annotated[int, _positive("The longest wait, in milliseconds.")]


class Capabilities(ResponseModel):
    """What can be asked for."""

    entity_types: list[EntityType]
    keys: Annotated[dict[str, KeyRule], Field(json_schema_extra=all_of_the_keys)]
    brokers: BrokerFacts
    limits: RequestLimits
