"""Quotas as CSV: one row for each value; nothing that a spreadsheet would run. Source: RFC 4180."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity
from app.http.answers import values_json

HEADER: Final = (
    *(f"{kind.replace('-', '_')}_kind" for kind in ENTITY_TYPES),
    *(str(kind) for kind in ENTITY_TYPES),
    "key",
    "value",
)
"""``user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value``."""

FORMULA_MARKS: Final = ("=", "+", "-", "@", "'", "\t", "\r", "\n")
"""A cell that begins with one of these gets one leading ``'``, which a reader takes off again.

Spreadsheets skip line ends before a formula. Nothing is lost: whatever begins with ``'`` has one
more than it had.
"""

_FLUSH_CHARACTERS: Final = 16 * 1024


def csv_rows(entries: Iterable[tuple[ClientQuotaEntity, Values]]) -> Iterator[bytes]:
    r"""Yield the header and the rows in UTF-8; lines end with ``\r\n``."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(HEADER)
    for entity, values in entries:
        writer.writerows(_rows(entity, values))
        if buffer.tell() > _FLUSH_CHARACTERS:
            yield _taken(buffer)
    yield _taken(buffer)


def _taken(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text.encode()


def _rows(entity: ClientQuotaEntity, values: Values) -> Iterator[list[str]]:
    names = entity.as_dict()
    kinds = [_kind(names, kind) for kind in ENTITY_TYPES]
    cells = [_guarded(names.get(kind) or "") for kind in ENTITY_TYPES]
    for key, value in values_json(values).items():
        yield [*kinds, *cells, _guarded(key), _guarded(str(value))]


def _kind(names: dict[str, str | None], kind: str) -> str:
    if kind not in names:
        return "absent"
    return "default" if names[kind] is DEFAULT_NAME else "name"


def _guarded(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA_MARKS) else cell
