"""A document of quotas, read from CSV: as ``GET /quotas`` writes it, or a column for each key.

In the short form an empty cell of an entity type is a type that the entity does not have,
``<default>`` is the default entity, and a name of that text is ``'<default>``; an empty cell of a
key is a key that is not mentioned.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from app.documents.faults import Fault, Faults, UnreadableDocumentError
from app.documents.quotas import Document, Lines, twice
from app.documents.text import unguard_cell
from app.domain.alterations import DesiredValue
from app.domain.entities import DEFAULT, DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity
from app.domain.errors import pointer_token
from app.domain.plans import DesiredQuota
from app.domain.quantities import NUMBER, read_value
from app.domain.quota_keys import QUOTA_KEY_RULES, unknown_key

TYPES: Final = tuple(kind.value for kind in ENTITY_TYPES)
KINDS: Final = tuple(f"{kind.replace('-', '_')}_kind" for kind in TYPES)
HEADER: Final = (*KINDS, *TYPES, "key", "value")
"""``user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value``."""

_COLUMNS: Final = frozenset({*HEADER, *QUOTA_KEY_RULES})
_SHORT_COLUMNS: Final = frozenset({*TYPES, *QUOTA_KEY_RULES})
_LONG_MARKS: Final = frozenset({*KINDS, "key", "value"})
_DELIMITERS: Final = (",", ";", "\t")
_LONGEST_HEADING: Final = 1_000
_AMOUNT: Final = re.compile(rf"{NUMBER}\s*(?:[kKMGT]i?B(?:/s)?|%)?")
_WORD: Final = re.compile(r"[^\W\d][\w -]*")
_KIND_WORDS: Final = ("name", "default", "absent")


class _Row(NamedTuple):
    line: int
    cells: Sequence[str]


def is_csv(text: str) -> bool:
    """Tell whether a text begins with a heading that this module reads.

    A heading begins with a word. JSON, YAML and their comments do not, up to the first comma of a
    name in them that may spell a column.
    """
    first = _first_line(text)
    return any(
        len(cells) > 1
        and any(_spelled(cell) in _COLUMNS for cell in cells)
        and _WORD.fullmatch(next(filter(None, cells)))
        for cells in (_cells(first, delimiter) for delimiter in _DELIMITERS)
    )


def read_csv(text: str, most: int | None = None) -> Document:
    """Read a table; commas, semicolons or tabs separate its cells.

    Args:
        text: With a heading.
        most: So many entities are read at most; null: any number.

    Raises:
        UnreadableDocumentError: With every fault.
    """
    first = _first_line(text)
    delimiter = max(_DELIMITERS, key=lambda each: _columns_in(_cells(first, each)))
    heading = _cells(first, delimiter)
    faults, is_long = Faults(), not _LONG_MARKS.isdisjoint(heading)
    if len(first) == _LONGEST_HEADING:
        raise UnreadableDocumentError([Fault(1, "the heading is too long")])
    (_check_long if is_long else _check_short)(heading, faults)
    faults.refuse_if_any()
    rows = _rows(text, delimiter, skips_blanks=not is_long)
    next(rows)
    table = _Table(heading, faults, most)
    for row in rows:
        (table.add_value if is_long else table.add_entity)(row)
    faults.refuse_if_any()
    return table.document


_SEPARATOR: Final = re.compile(r'"?sep=[,;\t]"?(?=[\r\n])', re.IGNORECASE)
"""The line by which Excel knows what separates the cells."""


def _first_line(text: str) -> str:
    reader = io.StringIO(_table_of(text).lstrip("\r\n"), newline="")
    return reader.readline(_LONGEST_HEADING).rstrip("\r\n")


def _table_of(text: str) -> str:
    """Return the text from its heading on; where a line of Excel's was is an empty one."""
    bare = text.removeprefix("\ufeff")
    return _SEPARATOR.sub("", bare, count=1) if _SEPARATOR.match(bare) else bare


def _columns_in(cells: Sequence[str]) -> int:
    return len(_COLUMNS & {_spelled(cell) for cell in cells})


def _spelled(cell: str) -> str:
    """Return the column that a cell of a heading is meant for, or the cell."""
    word = cell.strip().lower()
    kind = word.replace("_", "-").replace(" ", "-")
    return kind if kind in TYPES else word.replace("-", "_").replace(" ", "_")


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(delimiter)]


def _rows(text: str, delimiter: str, *, skips_blanks: bool) -> Iterator[_Row]:
    """Yield the rows that are not empty, each with the line that it begins in."""
    reader = csv.reader(
        io.StringIO(_table_of(text), newline=""),
        delimiter=delimiter,
        skipinitialspace=skips_blanks,
        strict=True,
    )
    line = 1
    try:
        for cells in reader:
            if any(cells):
                yield _Row(line, cells)
            line = reader.line_num + 1
    except csv.Error as error:
        raise UnreadableDocumentError([Fault(line, f"this is not CSV: {error}")]) from error


def _check_long(heading: Sequence[str], faults: Faults) -> None:
    if sorted(heading) != sorted(HEADER):
        faults.add(1, f"the heading is {','.join(HEADER)}")


def _check_short(heading: Sequence[str], faults: Faults) -> None:
    for name in sorted(name for name, number in Counter(heading).items() if name and number > 1):
        faults.add(1, f"the column {name} is there twice")
    if {*TYPES}.isdisjoint(map(_spelled, heading)):
        faults.add(1, "the heading names user, client-id or ip, then quota keys")
    elif not set(heading) - {*TYPES, ""}:
        faults.add(1, "the heading has no quota key, so no row would set anything")
    for name in heading:
        if name and name not in _SHORT_COLUMNS:
            near = _spelled(name)
            is_near = near in _SHORT_COLUMNS
            faults.add(1, f"{name} is spelled {near}" if is_near else unknown_key(name))


class _Table:
    """What was read so far."""

    def __init__(self, heading: Sequence[str], faults: Faults, most: int | None) -> None:
        self.document = Document()
        self._heading = heading
        self._faults = faults
        self._most = most
        self._indices: dict[ClientQuotaEntity, int] = {}
        self._values: list[dict[str, DesiredValue | None]] = []

    def add_value(self, row: _Row) -> None:
        """Take a row of the long form: one value of an entity."""
        if len(row.cells) != len(self._heading):
            count = f"{len(row.cells)} cells, and the heading has {len(self._heading)}"
            self._faults.add(row.line, count)
            return
        cells = dict(zip(self._heading, row.cells, strict=True))
        names: dict[str, str | None] = {}
        for kind, column in zip(TYPES, KINDS, strict=True):
            word, name = cells[column], unguard_cell(cells[kind])
            if word not in _KIND_WORDS or (name and word != "name"):
                detail = f"{column} is name, default or absent, and {kind} is empty but for a name"
                self._faults.add(row.line, detail)
                return
            if word != "absent":
                names[kind] = name if word == "name" else DEFAULT_NAME
        entity = ClientQuotaEntity.of(names)
        index = self._indices.get(entity)
        if index is None:
            index = self._begin(entity, row.line)
        self._set(index, unguard_cell(cells["key"]), cells["value"], row.line)

    def add_entity(self, row: _Row) -> None:
        """Take a row of the short form: an entity with all of its values."""
        pairs = list(zip_longest(self._heading, row.cells, fillvalue=""))
        if any(cell and not name for name, cell in pairs):
            self._faults.add(row.line, "a cell stands in a column without a name")
        names = {kind: _name(cell) for kind, cell in pairs if kind in TYPES and cell}
        entity = ClientQuotaEntity.of(names)
        if not names:
            self._faults.add(row.line, "a row names a user, a client-id or an ip")
            return
        if entity in self._indices:
            before = self.document.lines[self._indices[entity]].item
            pointer = f"/quotas/{len(self.document.quotas)}/entity"
            self._faults.add(row.line, twice(entity, before), pointer, "duplicate-entity")
            return
        if len(row.cells) < len(self._heading):
            self._check_shift(row)
        index = self._begin(entity, row.line)
        for name, cell in pairs:
            if name in QUOTA_KEY_RULES and cell.strip():
                self._set(index, name, cell, row.line)

    def _check_shift(self, row: _Row) -> None:
        """Find a value below a name: an empty cell was left out, which moves what follows it.

        Excel leaves out the last cells of rows where all of them are empty, so a row may be short.
        """
        for name, cell in list(zip(self._heading, row.cells, strict=False))[1:]:
            if name in TYPES and _AMOUNT.fullmatch(cell.strip()):
                count = f"{len(row.cells)} cells, and the heading has {len(self._heading)}"
                detail = f"{count}: {cell.strip()} is in the column {name}; write empty cells, too"
                self._faults.add(row.line, detail)

    def _begin(self, entity: ClientQuotaEntity, line: int) -> int:
        index = self._indices[entity] = len(self.document.quotas)
        if self._most is not None and index >= self._most:
            self._faults.add(
                line, f"over {self._most} entities; split the file", code="too-many-changes"
            )
            self._faults.refuse_if_any()
        if not entity.entries:
            self._faults.add(line, "an entity has at least one type", f"/quotas/{index}/entity")
        self._values.append({})
        self.document.quotas.append(DesiredQuota(entity, self._values[index]))
        self.document.lines.append(Lines(line))
        return index

    def _set(self, index: int, key: str, cell: str, line: int) -> None:
        quota, lines = self.document.quotas[index], self.document.lines[index]
        pointer = f"/quotas/{index}/values/{pointer_token(key)}"
        if key in lines.values:
            detail = f"{quota.entity} {key} is there twice (before: line {lines.values[key]})"
            self._faults.add(line, detail, pointer)
            return
        lines.values[key] = line
        try:
            self._values[index][key] = read_value(key, unguard_cell(cell))
        except ValueError as error:
            self._faults.add(line, f"{quota.entity} {error}", pointer, "unreadable-value")


def _name(cell: str) -> str | None:
    return DEFAULT_NAME if cell == DEFAULT else unguard_cell(cell)
