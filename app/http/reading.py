"""Reading JSON members without coercion, collecting every violation on the way."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from types import NoneType
from typing import Any, Final, Self, TypeVar

from app.domain.errors import (
    MAX_VIOLATIONS,
    InvalidRequestError,
    UnreadableRequestError,
    Violation,
)
from app.http.json_pointer import child
from app.http.strict_json import JsonObject, JsonValue, shown

T = TypeVar("T")

_KINDS: Final[dict[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    Decimal: "a number",
    bool: "true or false",
    NoneType: "null",
}


def kind_of(value: JsonValue) -> str:
    """Name the JSON type of a value for a sentence."""
    return _KINDS[type(value)]


@dataclass(frozen=True, slots=True)
class ListLimit:
    """How long a list may be; a longer one is refused before any item of it is looked at.

    Attributes:
        items: At most so many.
        code: Of the violation where there are more.
        kafka_error: What a broker would have answered, or null.
    """

    items: int
    code: str
    kafka_error: str | None = None


@dataclass(slots=True)
class Reading:
    """What was wrong so far.

    Attributes:
        unreadable: Wrong types, unknown and missing fields: 400.
        broken: Rules of the request itself that were broken: 422.
    """

    unreadable: list[Violation] = field(default_factory=list)
    broken: list[Violation] = field(default_factory=list)

    def reject(self, pointer: str, code: str, detail: str) -> None:
        """Note something that cannot be read.

        Raises:
            UnreadableRequestError: There is too much of it to go on.
        """
        self.unreadable.append(Violation(pointer, code, detail))
        if len(self.unreadable) > MAX_VIOLATIONS:
            self.refuse_if_unreadable()

    def breaks(self, pointer: str, code: str, detail: str) -> None:
        """Note a broken rule; else as ``note_broken``."""
        self.note_broken([Violation(pointer, code, detail)])

    def note_broken(self, violations: Iterable[Violation]) -> None:
        """Note broken rules.

        Raises:
            InvalidRequestError: There are too many to go on.
        """
        self.broken.extend(violations)
        if len(self.broken) > MAX_VIOLATIONS:
            detail = "Many rules are broken; see errors for the first of them."
            raise InvalidRequestError(detail, violations=self.broken)

    def wrong_type(self, pointer: str, wanted: str, value: JsonValue) -> None:
        """Note a value of another type than wanted."""
        self.reject(pointer, "wrong-type", f"This must be {wanted}, not {kind_of(value)}.")

    def refuse_if_unreadable(self) -> None:
        """Raise if anything could not be read.

        Raises:
            UnreadableRequestError: With every such violation.
        """
        if self.unreadable:
            detail = "The body cannot be read; see errors for each place."
            raise UnreadableRequestError(detail, violations=self.unreadable)


@dataclass(slots=True)
class ObjectReader:
    """One JSON object; each method reads one member and notes what is wrong with it."""

    members: JsonObject
    pointer: str
    reading: Reading

    @classmethod
    def of(
        cls, value: JsonValue, pointer: str, known: frozenset[str], reading: Reading
    ) -> Self | None:
        """Open an object; null if it is none. Members that are not known are noted."""
        if not isinstance(value, dict):
            reading.wrong_type(pointer, "an object", value)
            return None
        for name in value:
            if name in known:
                continue
            detail = f"Unknown field {shown(name)}; known are {', '.join(sorted(known))}."
            reading.reject(child(pointer, name), "unknown-field", detail)
        return cls(value, pointer, reading)

    def flag(self, name: str, *, default: bool) -> bool:
        """Read ``true`` or ``false``."""
        value = self._typed(name, bool)
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """Read a string; null if it is missing."""
        return self._typed(name, str)

    def number(self, name: str) -> Decimal | None:
        """Read a number; null if it is missing."""
        return self._typed(name, Decimal)

    def object(self, name: str) -> JsonObject | None:
        """Read an object; null if it is missing."""
        return self._typed(name, dict)

    def items(self, name: str, limit: ListLimit | None = None) -> Iterator[tuple[str, JsonValue]]:
        """Yield the pointer and the value of each item of an array; a missing one has none.

        Args:
            name: Of the member.
            limit: How many items it may have, or null for any number.

        Raises:
            InvalidRequestError: It has more; none of them is looked at.
        """
        items: list[Any] = self._typed(name, list) or []
        base = child(self.pointer, name)
        if limit is not None and len(items) > limit.items:
            detail = f"{len(items)} {name}; a request takes at most {limit.items}."
            violation = Violation(base, limit.code, detail, limit.kafka_error)
            raise InvalidRequestError(detail, violations=[violation])
        return ((f"{base}/{index}", item) for index, item in enumerate(items))

    def need(self, *names: str) -> bool:
        """Tell whether every one of the members is there; note those that are missing."""
        missing = [name for name in names if name not in self.members]
        for name in missing:
            detail = f"The field {name} is missing."
            self.reading.reject(child(self.pointer, name), "missing-field", detail)
        return not missing

    def _typed(self, name: str, wanted: type[T]) -> T | None:
        if name not in self.members:
            return None
        value = self.members[name]
        if isinstance(value, wanted):
            return value
        self.reading.wrong_type(child(self.pointer, name), _KINDS[wanted], value)
        return None
