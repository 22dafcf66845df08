"""Problem documents. Source: RFC 9457."""

from typing import Annotated, Final, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from app.domain.errors import MAX_VIOLATIONS, Retry, Sent
from app.http.alterations.models import AlterationResult
from app.http.models import AlterationId, QuotaValues, RequestId, closed

_CODE: Final = "[a-z0-9]+(-[a-z0-9]+)*"

_Code = Annotated[str, Field(pattern=f"^{_CODE}$", description="The kind of problem.")]


@with_config(ConfigDict(extra="allow"))
class ViolationValues(TypedDict):
    """Further members for programs, such as the `current` values."""

    current: NotRequired[QuotaValues]


@closed
class Violation(TypedDict):
    """One broken rule and where it is broken."""

    pointer: Annotated[
        str, Field(description="A JSON pointer into the body, or a query parameter or header.")
    ]
    code: Annotated[str, Field(pattern=f"^{_CODE}$", description="The broken rule.")]
    detail: Annotated[str, Field(description="A sentence that says what to do.")]
    kafka_error: NotRequired[
        Annotated[
            str,
            Field(description="What a broker would have answered; only where it would refuse."),
        ]
    ]
    values: NotRequired[ViolationValues]


@closed
class Problem(TypedDict):
    """Why a request was not done. No stack trace, no secret."""

    type: Annotated[
        str, Field(pattern=f"^/problems/{_CODE}$", description="The path of a page for people.")
    ]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: Annotated[str, Field(description="A sentence for people.")]
    instance: Annotated[str, Field(description="The path of the request.")]
    code: _Code
    request_id: RequestId
    kafka_error: Annotated[
        str | None, Field(description="Kafka's name, such as `INVALID_REQUEST`.")
    ]
    sent_to_cluster: Annotated[
        Sent,
        Field(description="Whether a request that changes something has left this service."),
    ]
    retry: Annotated[Retry, Field(description="Whether the request may be repeated as it is.")]
    errors: Annotated[
        list[Violation], Field(description=f"Every violation, up to {MAX_VIOLATIONS}, then `more`.")
    ]
    alteration_id: NotRequired[AlterationId]
    results: NotRequired[
        Annotated[
            list[AlterationResult],
            Field(description="In request order, where the alteration got that far."),
        ]
    ]
