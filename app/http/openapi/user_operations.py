"""The operation of ``/users``, with its schemas and its example."""

from collections.abc import Mapping
from typing import Any, Final

from app.http.openapi import example_values as given
from app.http.openapi.responses import READING, json_answer, problems
from app.http.openapi.security import CALLER
from app.http.openapi.shapes import Schema, array, closed, ref, text, whole
from app.http.scram_documents import scram_users_json
from app.service.reading.scram_credentials import ScramCredential, ScramUsers

USER_SCHEMAS: Final[Mapping[str, Schema]] = {
    "ScramCredential": closed(
        {
            "mechanism": text("`SCRAM-SHA-256` or `SCRAM-SHA-512`."),
            "iterations": whole(0, description="Of the hash."),
        },
        description="What Kafka tells of a credential: no salt and no key.",
    ),
    "ScramUser": closed(
        {
            "user": text("The user's name, without `User:`."),
            "credentials": array(ref("ScramCredential"), "One for each mechanism."),
        }
    ),
    "ScramUsers": closed(
        {
            "cluster_id": ref("ClusterId"),
            "as_of": ref("Time"),
            "users": array(ref("ScramUser"), "Those that have credentials, by name."),
        }
    ),
}

_USERS: Final = {
    "alice": (ScramCredential("SCRAM-SHA-256", 8192), ScramCredential("SCRAM-SHA-512", 4096)),
    "bob": (ScramCredential("SCRAM-SHA-512", 4096),),
}

USER_EXAMPLES: Final[Mapping[str, Any]] = {
    "scram-credentials": {
        "summary": "Two users have credentials.",
        "value": scram_users_json(ScramUsers(_USERS, given.AT, given.CLUSTER_ID)),
    }
}

USER_OPERATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "GET /users/scram-credentials": {
        "operationId": "describeScramCredentials",
        "summary": "Describe SCRAM credentials",
        **CALLER,
        "parameters": [ref("X-Request-Id", "parameters")],
        "responses": {
            "200": json_answer(
                "The users that have SCRAM credentials.", "ScramUsers", "scram-credentials"
            ),
            **problems(*READING),
        },
    },
}
