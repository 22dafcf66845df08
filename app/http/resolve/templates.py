"""Answers of one pattern: one document with places for the names and the numbers of the others."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.http.json_text import json_bytes

Place = tuple[int, str]
"""A number: the level and the key that it is stored under. A name: ``NAME`` and its type."""

NAME: Final = 0

_SECRET: Final = secrets.token_hex(8)
"""Stands in every mark, so that no name or note can pass for one."""

_MARK: Final = re.compile(rb'"%b:([0-9]+)"' % _SECRET.encode())


class Template:
    """The document of one identity, to be filled in for others of the same pattern.

    Attributes:
        places: What ``fill`` is given.

    Args:
        document: What ``resolution_document`` returns for an identity; it is changed.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._marks: dict[Place, str] = {}
        self._mark(document)
        first, *parts = _MARK.split(json_bytes(document))
        self._order = [int(at) for at in parts[::2]]
        texts = [first, *parts[1::2]]
        self._text = b"%b".join([text.replace(b"%", b"%%") for text in texts])
        self.places = list(self._marks)

    def fill(self, columns: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Return documents as JSON.

        Args:
            columns: For each place the names or numbers, in JSON too, of all documents.
        """
        text = self._text
        return [text % row for row in zip(*[columns[at] for at in self._order], strict=True)]

    def fill_one(self, texts: Sequence[bytes]) -> bytes:
        """Return one document as JSON, with a name or number for each place."""
        return self._text % tuple([texts[at] for at in self._order])

    def _mark(self, document: dict[str, Any]) -> None:
        identity = dict(document["identity"])
        self._mark_names(document["identity"], identity)
        for key, quota in document["quotas"].items():
            self._mark_names(quota["shared_by"], identity)
            source = quota["source"]
            if source is not None:
                self._mark_names(source["entity"], identity)
                quota["value"] = self._place(source["level"], key)
            for one in quota["overridden"]:
                self._mark_names(one["entity"], identity)
                one["value"] = self._place(one["level"], key)

    def _mark_names(self, names: dict[str, str | None], identity: Mapping[str, str]) -> None:
        for kind, name in names.items():
            if name is not None and name == identity.get(kind):
                names[kind] = self._place(NAME, kind)

    def _place(self, level: int, key: str) -> str:
        return self._marks.setdefault((level, key), f"{_SECRET}:{len(self._marks)}")
