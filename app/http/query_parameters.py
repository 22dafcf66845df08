"""Query parameters as data: one table for each route reads them and documents them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a parameter holds; COMPONENT is one of a filter, in the grammar of ``filter_query``."""

    TEXT = "text"
    COMPONENT = "component"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TIME = "time"
    WORD = "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """One parameter of a route.

    Attributes:
        name: As in the query string.
        description: For the OpenAPI document.
        kind: How its text is read.
        repeats: Whether it may be given more than once; its value is then a tuple of texts.
        default: The value where it is missing; for a repeating one always ``()``.
        minimum: The smallest INTEGER or NUMBER.
        maximum: The largest.
        words: The values of a WORD.
        example: For the OpenAPI document.
    """

    name: str
    description: str
    kind: Kind = Kind.TEXT
    repeats: bool = False
    default: Any = None
    minimum: int = 0
    maximum: int = 2**31 - 1
    words: tuple[str, ...] = ()
    example: Any = None


def openapi_parameters(parameters: Sequence[QueryParameter]) -> list[dict[str, Any]]:
    """Return the OpenAPI parameter objects for the table."""
    return [_openapi_parameter(parameter) for parameter in parameters]


def _openapi_parameter(parameter: QueryParameter) -> dict[str, Any]:
    schema = _schema(parameter)
    if parameter.repeats:
        schema = {"type": "array", "items": schema}
    elif parameter.default is not None:
        schema["default"] = parameter.default
    description = parameter.description
    if parameter.example is not None:  # one of its own would be sent by each "Try it out" of /docs
        values = parameter.example if isinstance(parameter.example, list) else [parameter.example]
        description += f" For example {', '.join(f'`{value}`' for value in values)}."
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": schema,
    }


def _schema(parameter: QueryParameter) -> dict[str, Any]:
    match parameter.kind:
        case Kind.BOOLEAN:
            return {"type": "boolean"}
        case Kind.INTEGER:
            bounds = {"minimum": parameter.minimum, "maximum": parameter.maximum}
            return {"type": "integer", **bounds}
        case Kind.NUMBER:
            bounds = {"minimum": parameter.minimum, "maximum": parameter.maximum}
            return {"type": "number", **bounds}
        case Kind.TIME:
            return {"type": "string", "format": "date-time"}
        case Kind.WORD:
            return {"type": "string", "enum": list(parameter.words)}
        case Kind.TEXT | Kind.COMPONENT:
            return {"type": "string"}
