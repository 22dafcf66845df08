"""Schemas of what operators ask: probes and version."""

from collections.abc import Mapping
from typing import Final

from app.http.openapi.shapes import Schema, closed, text, words

OPERATION_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Liveness": closed({"status": {"const": "ok"}}),
    "Readiness": closed(
        {
            "status": words(("ok", "unavailable")),
            "problems": {
                "type": "object",
                "description": "What stands in the way, by dependency.",
                "additionalProperties": {"type": "string"},
            },
        }
    ),
    "PlainText": text(),
    "Version": closed({"name": {"const": "kafka-quota-service"}, "version": text()}),
}
