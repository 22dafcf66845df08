"""``impact``: what a change that is only checked would have meant for past traffic."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import Request
from pydantic import AliasPath, BeforeValidator, Field, TypeAdapter

from app.domain.alterations import ClientQuotaAlteration, Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import Violation
from app.domain.plan_impact import MAX_BUCKETS, TouchedBucket
from app.domain.resolution_index import QuotaIndex
from app.http.guards import actor_of, services_of
from app.http.models import BUCKET_ID_PATTERN, ResponseModel, StoredValue, Time
from app.service.queries.resolve import IndexedImage, ResolveQuery

WITH_IMPACT: Final = Field(
    title="WithImpact",
    description="Add `impact`: what the change would have meant for the traffic of the last days.",
)


def _of_bucket(*path: str) -> Any:
    return Field(validation_alias=AliasPath("bucket", *path))


class BucketTags(ResponseModel):
    """Who spends from a bucket, as metric tags: empty for any."""

    user: str
    client_id: Annotated[str, Field(serialization_alias="client-id")]


class BucketImpact(ResponseModel):
    """What the change would have meant for one bucket."""

    bucket_id: Annotated[
        str, BeforeValidator(str), Field(pattern=BUCKET_ID_PATTERN), _of_bucket("bucket_id")
    ]
    key: Annotated[str, _of_bucket("name", "key")]
    shared_by: Annotated[BucketTags, _of_bucket("name")]
    limit_now: StoredValue | None
    """Null: unlimited."""
    limit_new: StoredValue | None
    """Likewise."""
    share_of_minutes_over: Annotated[float | None, Field(ge=0, le=1)]
    """The minutes on a broker in which its highest rate was over the new limit, 0 to 1; those less
    than 1 % over it are missed. Null: its callers would not share it any more, and its history
    does not tell them apart."""
    peak: Annotated[StoredValue, _of_bucket("peak")]
    """The highest rate of a minute on a broker, in the key's unit."""
    days: Annotated[int, Field(ge=1), _of_bucket("days")]
    """Days with data, at most 14."""
    data_through: Annotated[Time, _of_bucket("data_through")]
    """The end of the last minute with data."""
    censored: Annotated[bool, _of_bucket("censored")]
    """Whether it was throttled or over its limit in those days: then it may want more than it
    had."""


class NoImpact(ResponseModel):
    """Why there is no impact."""

    reason: Literal["no-run", "unavailable"]
    """`no-run`: the pipeline has published no histograms. `unavailable`: the database does not
    answer now."""


ImpactAnswer = Annotated[
    list[BucketImpact] | NoImpact,
    Field(
        description=(
            "With `impact` only: the buckets with published traffic whose limit or callers would "
            f"change, at most {MAX_BUCKETS}, those with the highest peak beside their new limit "
            "first."
        )
    ),
]


_IMPACT: Final = TypeAdapter[Any](ImpactAnswer)


def impact_json(impact: Any) -> Any:
    """Return an impact as a document."""
    return _IMPACT.dump_python(impact, by_alias=True)


def impact_of_nothing(of: str) -> Violation:
    """Return the violation of a request that asks for an impact and has no proposal."""
    return Violation("/impact", "impact-of-nothing", f"There is an impact of {of} alone.")


class FoundImpact(NamedTuple):
    """What the changes of a request would have meant.

    Attributes:
        touched: The buckets; or why nothing is known of any.
    """

    touched: Sequence[TouchedBucket] | str

    def answer(self, entity: ClientQuotaEntity | None = None) -> Any:
        """Return the impact of all changes, or of those of an entity."""
        if isinstance(self.touched, str):
            return NoImpact.model_validate({"reason": self.touched})
        return [
            BucketImpact.model_validate(each)
            for each in self.touched
            if entity is None or entity in each.entities
        ]


async def impact_of_values(
    request: Request,
    alterations: Sequence[ClientQuotaAlteration],
    values: Mapping[ClientQuotaEntity, Values],
) -> FoundImpact:
    """Return the impact of valid alterations; ``values`` are what the entities would have."""
    basis = await services_of(request).resolve.basis(actor_of(request), ResolveQuery(()))
    return await impact_of(request, alterations, basis.image, basis.image.index.with_values(values))


async def impact_of(
    request: Request,
    alterations: Sequence[ClientQuotaAlteration],
    present: IndexedImage,
    proposed: QuotaIndex,
) -> FoundImpact:
    """Return the impact of alterations."""
    found = await services_of(request).analytics.impact(
        alterations, present.index, proposed, present.rules
    )
    return FoundImpact(found)
