"""The shapes that the schemas are made of. Source: JSON Schema 2020-12, OpenAPI 3.1."""

from collections.abc import Collection, Mapping
from typing import Any

Schema = dict[str, Any]


def ref(name: str, section: str = "schemas") -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{section}/{name}"}


def closed(
    properties: Mapping[str, Schema], *, optional: Collection[str] = (), description: str = ""
) -> Schema:
    """Return an object that has these members and no other; all are needed but ``optional``."""
    schema: Schema = {"type": "object"}
    if description:
        schema["description"] = description
    required = [name for name in properties if name not in optional]
    if required:
        schema["required"] = required
    return {**schema, "properties": dict(properties), "additionalProperties": False}


def array(items: Schema, description: str = "", **bounds: int) -> Schema:
    """Return an array; ``bounds`` are keywords such as ``minItems``."""
    schema: Schema = {"type": "array", "items": items, **bounds}
    return {**schema, "description": description} if description else schema


def nullable(schema: Schema, description: str = "") -> Schema:
    """Return the schema for the same or null."""
    either: Schema = {"anyOf": [schema, {"type": "null"}]}
    return {**either, "description": description} if description else either


def text(description: str = "", **keywords: Any) -> Schema:
    """Return a string; ``keywords`` are such as ``pattern``."""
    schema: Schema = {"type": "string", **keywords}
    return {**schema, "description": description} if description else schema


def text_or_null(description: str = "") -> Schema:
    """Return a string that may be null."""
    schema: Schema = {"type": ["string", "null"]}
    return {**schema, "description": description} if description else schema


def words(values: Collection[str], description: str = "") -> Schema:
    """Return one of some fixed texts."""
    return text(description, enum=[str(value) for value in values])


def whole(minimum: int, maximum: int | None = None, description: str = "") -> Schema:
    """Return an integer within bounds; ``maximum`` null for none."""
    schema: Schema = {"type": "integer", "minimum": minimum}
    if maximum is not None:
        schema["maximum"] = maximum
    return {**schema, "description": description} if description else schema


def flag(description: str, *, default: bool | None = None) -> Schema:
    """Return true or false."""
    schema: Schema = {"type": "boolean", "description": description}
    return schema if default is None else {**schema, "default": default}
