"""The columns by which the log's rows of an entity are found."""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity

ABSENT: Final = "absent"
DEFAULT: Final = "default"
NAME: Final = "name"

_COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    str(kind): (f"{column}_kind", f"{column}_name")
    for kind in ENTITY_TYPES
    for column in (str(kind).replace("-", "_"),)
}
"""The two columns of each entity type."""

_NO_TYPES: Final[Mapping[str, Any]] = {
    "other_types": False,
    **{of_kind: ABSENT for of_kind, _ in _COLUMNS.values()},
}


def name_bytes(name: str) -> bytes:
    """Return a name as it is stored: Postgres text cannot hold U+0000, bytes can."""
    return name.encode("utf-8", "surrogatepass")


def entity_columns(entity: ClientQuotaEntity) -> dict[str, Any]:
    """Return the columns that an entity is found by."""
    columns: dict[str, Any] = {**_NO_TYPES}
    for kind, name in entity.entries:
        if kind not in _COLUMNS:
            columns["other_types"] = True
            continue
        of_kind, of_name = _COLUMNS[kind]
        columns[of_kind] = DEFAULT if name is DEFAULT_NAME else NAME
        if name is not DEFAULT_NAME:
            columns[of_name] = name_bytes(name)
    return columns
