"""The OpenAPI document: what FastAPI knows of the routes, and everything else from the tables."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from app.http.openapi.alteration_schemas import ALTERATION_SCHEMAS
from app.http.openapi.analytics_operations import ANALYTICS_EXAMPLES, RUN_REQUESTS
from app.http.openapi.analytics_schemas import ANALYTICS_SCHEMAS
from app.http.openapi.answer_examples import ANSWER_EXAMPLES
from app.http.openapi.audit_schemas import AUDIT_SCHEMAS
from app.http.openapi.change_schemas import CHANGE_SCHEMAS
from app.http.openapi.headers import HEADERS, REQUEST_HEADERS
from app.http.openapi.operation_schemas import OPERATION_SCHEMAS
from app.http.openapi.operations import OPERATIONS
from app.http.openapi.parameters import PARAMETER_SCHEMAS
from app.http.openapi.plan_operations import APPLY_REQUESTS, PLAN_EXAMPLES, PLAN_REQUESTS
from app.http.openapi.plan_schemas import PLAN_SCHEMAS
from app.http.openapi.problem_examples import PROBLEM_EXAMPLES
from app.http.openapi.problem_schemas import PROBLEM_SCHEMAS
from app.http.openapi.quota_schemas import QUOTA_SCHEMAS
from app.http.openapi.request_examples import (
    ALTERATION_REQUESTS,
    RESOLVE_REQUESTS,
    REVERT_REQUESTS,
)
from app.http.openapi.resolution_schemas import RESOLUTION_SCHEMAS
from app.http.openapi.responses import PROBLEM_RESPONSES
from app.http.openapi.security import SCHEMES
from app.http.openapi.shapes import Schema
from app.http.openapi.user_operations import USER_EXAMPLES, USER_SCHEMAS
from app.http.openapi.value_schemas import VALUE_SCHEMAS

_INTRODUCTION: Final = """\
Describe, alter and resolve the client quotas of an Apache Kafka cluster.

* **Entities** are objects from entity type (`user`, `client-id`, `ip`) to name. `null` is the \
default entity; a missing type is not part of the entity.
* **Errors** are problem documents (RFC 9457) that list every violation. `sent_to_cluster` and \
`retry` say whether something may have changed and whether to repeat.
* **Repeating** an alteration is safe with an `Idempotency-Key`: it is answered with what became \
of the first request, and changes nothing.
* **Strictness**: what cannot be read is 400: unknown fields and parameters, repeated JSON keys, \
wrong types. What can be read and breaks a rule is 422.
* **Rights** are the broker's: reading needs `DESCRIBE_CONFIGS`, altering `ALTER_CONFIGS` on the \
Cluster resource `kafka-cluster`.
* **Times** are RFC 3339 in UTC with milliseconds.
"""

_TAGS: Final = (
    {"name": "quotas", "description": "What is stored, and what can be."},
    {"name": "alterations", "description": "Change quotas; every change has a record."},
    {"name": "plans", "description": "Documents of desired quotas: compare, then apply."},
    {"name": "resolve", "description": "What applies to whom, and why."},
    {"name": "audit", "description": "Who changed what, when, and what became of it."},
    {"name": "users", "description": "Who can log in, so that a quota can have a user."},
    {"name": "analytics", "description": "Who is near a limit, and who was throttled."},
    {"name": "operation", "description": "For operators; no credential is needed."},
)

_SCHEMAS: Final[Mapping[str, Schema]] = {
    **VALUE_SCHEMAS,
    **PARAMETER_SCHEMAS,
    **QUOTA_SCHEMAS,
    **CHANGE_SCHEMAS,
    **ALTERATION_SCHEMAS,
    **PLAN_SCHEMAS,
    **RESOLUTION_SCHEMAS,
    **AUDIT_SCHEMAS,
    **USER_SCHEMAS,
    **ANALYTICS_SCHEMAS,
    **PROBLEM_SCHEMAS,
    **OPERATION_SCHEMAS,
}

_COMPONENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "schemas": _SCHEMAS,
    "responses": PROBLEM_RESPONSES,
    "parameters": REQUEST_HEADERS,
    "examples": {
        **ALTERATION_REQUESTS,
        **REVERT_REQUESTS,
        **RESOLVE_REQUESTS,
        **PLAN_REQUESTS,
        **APPLY_REQUESTS,
        **PLAN_EXAMPLES,
        **USER_EXAMPLES,
        **RUN_REQUESTS,
        **ANALYTICS_EXAMPLES,
        **ANSWER_EXAMPLES,
        **PROBLEM_EXAMPLES,
    },
    "headers": HEADERS,
    "securitySchemes": SCHEMES,
}


def complete(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of FastAPI with everything that it does not know.

    The operations are taken over whole: FastAPI would drop the nulls of examples and write bounds
    as floats.

    Raises:
        KeyError: A route that ``OPERATIONS`` does not describe.
    """
    return {
        **document,
        "info": {**document["info"], "description": _INTRODUCTION},
        "servers": [{"url": "/", "description": "This service."}],
        "tags": [dict(tag) for tag in _TAGS],
        "paths": {
            path: {method: _operation(method, path, plain) for method, plain in methods.items()}
            for path, methods in document["paths"].items()
        },
        "components": deepcopy(dict(_COMPONENTS)),
    }


def _operation(method: str, path: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: plain[name] for name in ("tags", "description") if name in plain}
    described = deepcopy(dict(OPERATIONS[f"{method.upper()} {path}"]))
    described["responses"] = dict(sorted(described["responses"].items()))
    return {**known, **described}
