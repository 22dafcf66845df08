"""Schemas of problem documents. Source: RFC 9457."""

from collections.abc import Mapping
from typing import Final

from app.domain.errors import MAX_VIOLATIONS, Retry, Sent
from app.http.openapi.shapes import (
    Schema,
    array,
    closed,
    ref,
    text,
    text_or_null,
    whole,
    words,
)

_CODE: Final = "[a-z0-9]+(-[a-z0-9]+)*"

PROBLEM_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Violation": closed(
        {
            "pointer": text("A JSON pointer into the body, or a query parameter or header."),
            "code": text("The broken rule.", pattern=f"^{_CODE}$"),
            "detail": text("A sentence that says what to do."),
            "kafka_error": text("What a broker would have answered; only where it would refuse."),
            "values": {
                "type": "object",
                "description": "Further members for programs, such as the `current` values.",
                "properties": {"current": ref("QuotaValues")},
            },
        },
        optional=("kafka_error", "values"),
        description="One broken rule and its place.",
    ),
    "Problem": closed(
        {
            "type": text("The path of a page for people.", pattern=f"^/problems/{_CODE}$"),
            "title": text(),
            "status": whole(400, 599),
            "detail": text("A sentence for people."),
            "instance": text("The path of the request."),
            "code": text("The kind of problem.", pattern=f"^{_CODE}$"),
            "request_id": ref("RequestId"),
            "kafka_error": text_or_null("Kafka's name, such as `INVALID_REQUEST`."),
            "sent_to_cluster": words(
                list(Sent), "Whether a request that changes something has left this service."
            ),
            "retry": words(list(Retry), "Whether the request may be repeated as it is."),
            "errors": array(
                ref("Violation"), f"Every violation, up to {MAX_VIOLATIONS}, then `more`."
            ),
            "alteration_id": ref("AlterationId"),
            "results": array(
                ref("AlterationResult"), "In request order, where the alteration got that far."
            ),
        },
        optional=("alteration_id", "results"),
        description="Why a request was not done. No stack trace, no secret.",
    ),
}
