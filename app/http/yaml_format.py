"""Quotas as YAML: the document of export, plan and apply."""

from collections.abc import Iterable, Iterator
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity, yaml_float, yaml_text
from app.http.encoding import JsonNumber, entity_json, values_json

API_VERSION: Final = "quotas/v1"

_LONGEST_SIMPLE_KEY: Final = 500
"""A longer key is marked with ``?``: a simple key has at most 1,024 characters, escapes included.
Source: YAML 1.1, 7.4.2 of YAML 1.2."""


def yaml_rows(entries: Iterable[tuple[ClientQuotaEntity, Values]]) -> Iterator[bytes]:
    """Yield the document in UTF-8, entity by entity."""
    yield f"apiVersion: {API_VERSION}\n".encode()
    heading = "quotas:\n"
    for entity, values in entries:
        names = _mapping((kind, _scalar(name)) for kind, name in entity_json(entity).items())
        numbers = _mapping((key, _number(value)) for key, value in values_json(values).items())
        yield f"{heading}  - entity: {names}\n    values: {numbers}\n".encode()
        heading = ""
    if heading:
        yield b"quotas: []\n"


def _mapping(members: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{_key(name)}: {text}' for name, text in members)}}}"


def _key(name: str) -> str:
    text = _scalar(name)
    return f"? {text} " if len(text) > _LONGEST_SIMPLE_KEY else text


def _scalar(text: str | None) -> str:
    return "null" if text is None else yaml_text(text)


def _number(value: JsonNumber) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value) if isinstance(value, int) else yaml_float(value)
