"""What is wrong with a text: each fault with its line, and all of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

UNREADABLE: Final = "unreadable-document"

MAX_FAULTS: Final = 1_000
"""So many are collected; then the text is not read any further."""


@dataclass(frozen=True, order=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        line: Counted from 1.
        detail: A sentence for people.
        code: Kebab-case.
        pointer: A JSON pointer into the document, as its JSON would be.
    """

    line: int
    detail: str
    code: str = UNREADABLE
    pointer: str = ""


class UnreadableDocumentError(Exception):
    """A text that cannot be read, with every fault by line."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = faults
        lines = [f"line {fault.line}: {fault.detail.removesuffix('.')}" for fault in faults[:3]]
        super().__init__("; ".join(lines))


class Faults:
    """Collects faults."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, line: int, detail: str, pointer: str = "", code: str = UNREADABLE) -> None:
        """Note a fault; with the last that is collected, all of them are reported."""
        self._faults.append(Fault(line, detail, code, pointer))
        if len(self._faults) == MAX_FAULTS:
            self.refuse_if_any()

    def refuse_if_any(self) -> None:
        """Report them.

        Raises:
            UnreadableDocumentError: There are some.
        """
        if self._faults:
            raise UnreadableDocumentError(sorted(self._faults))
