"""Parameters of the routes: their tables, with schemas that say more than a kind can."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.domain.entities import ENTITY_TYPES, EntityType
from app.http.openapi.shapes import Schema, ref, text
from app.http.openapi.value_schemas import ALTERATION_ID
from app.http.problem_codes import PROBLEMS
from app.http.query_parameters import QueryParameter, openapi_parameters

_TYPES: Final = "|".join(ENTITY_TYPES)
_BESIDE_IP: Final = f"{EntityType.USER}|{EntityType.CLIENT_ID}"


def _component(types: str, ends: str) -> str:
    """Return the pattern of a filter component; names may hold any character."""
    return rf"^({types})($|\^?=|:({ends})$)"


def _has(pattern: str) -> Schema:
    return {"contains": {"type": "string", "pattern": pattern}}


_FILTER: Final[Schema] = {
    "type": "array",
    "description": (
        "Components, ANDed: `TYPE=NAME`, `TYPE^=BEGINNING`, `TYPE:default`, `TYPE:any`, `TYPE` or "
        "`TYPE:absent`. Each type at most once; `ip` beside no other type that is not absent."
    ),
    "items": ref("QuotaFilterComponent"),
    "allOf": [
        {**_has(_component(kind, "default|any|absent")), "minContains": 0, "maxContains": 1}
        for kind in ENTITY_TYPES
    ],
    "not": {
        "allOf": [
            _has(_component(EntityType.IP, "default|any")),
            _has(_component(_BESIDE_IP, "default|any")),
        ]
    },
}

PARAMETER_SCHEMAS: Final[Mapping[str, Schema]] = {
    "QuotaFilterComponent": text(pattern=_component(_TYPES, "default|any|absent")),
    "QuotaFilter": _FILTER,
}

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "filter": ref("QuotaFilter"),
    "entity": ref("QuotaFilter"),
    "ip": ref("IpAddress"),
    "page_token": text(pattern="^[A-Za-z0-9_-]+$"),
}
"""What the tables cannot say, by the name of the parameter."""

ALTERATION_ID_PARAMETER: Final = {
    "name": "alteration_id",
    "in": "path",
    "required": True,
    "description": "The `alteration_id` of an answer.",
    "schema": text(pattern=ALTERATION_ID),
}

CODE_PARAMETER: Final = {
    "name": "code",
    "in": "path",
    "required": True,
    "description": "The `code` of a problem.",
    "schema": text(enum=list(PROBLEMS)),
    "example": "entity-busy",
}


def query_parameters(table: Sequence[QueryParameter]) -> list[dict[str, Any]]:
    """Return the parameters of a table."""
    return [
        {**document, "schema": _SCHEMAS.get(document["name"], document["schema"])}
        for document in openapi_parameters(table)
    ]
