"""Entities, from JSON to domain values."""

from app.domain.entities import ClientQuotaEntity
from app.http.json_pointer import child
from app.http.reading import ObjectReader


def read_entity(reader: ObjectReader) -> ClientQuotaEntity:
    """Read the member ``entity``: a name for each entity type, null for the default."""
    entries: dict[str, str | None] = {}
    for kind, name in (reader.object("entity") or {}).items():
        if name is None or isinstance(name, str):
            entries[kind] = name
        else:
            pointer = child(child(reader.pointer, "entity"), kind)
            reader.reading.wrong_type(pointer, "a string, or null for the default", name)
    return ClientQuotaEntity.of(entries)
