"""Kafka's primitive types as bytes: the way out, as ``Reader`` is the way in."""

import struct
from collections.abc import Callable, Collection
from typing import Final, TypeVar

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FLOAT64: Final = struct.Struct(">d")
_ONE_BYTE: Final = [bytes([number]) for number in range(0x80)]


class Writer:
    """Writes the body of one request; ``body`` gives it.

    ``flexible`` versions have compact lengths and, after every structure, tagged fields, of which
    none are written; the others have int16 and int32 lengths. Null has the length -1.

    Source: KIP-482, ``org.apache.kafka.common.protocol.types.Type``.
    """

    __slots__ = ("_add", "_flexible", "_parts")

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[bytes] = []
        self._add = self._parts.append

    @property
    def body(self) -> bytes:
        """What was written."""
        return b"".join(self._parts)

    def int8(self, value: int) -> None:
        """Write an int8."""
        self._add(_INT8.pack(value))

    def flag(self, value: bool) -> None:  # noqa: FBT001 - the value itself
        """Write a boolean."""
        self._add(b"\1" if value else b"\0")

    def float64(self, value: float) -> None:
        """Write a float64."""
        self._add(_FLOAT64.pack(value))

    def text(self, value: str | None) -> None:
        """Write a nullable string.

        Raises:
            ValueError: It is not Unicode, such as a lone surrogate.
            struct.error: It is longer than the version can say.
        """
        raw = b"" if value is None else value.encode()
        length = -1 if value is None else len(raw)
        self._add(_varint(length + 1) if self._flexible else _INT16.pack(length))
        self._add(raw)

    def array(self, items: Collection[T], write: Callable[["Writer", T], None]) -> None:
        """Write an array, each item by ``write``."""
        number = len(items)
        self._add(_varint(number + 1) if self._flexible else _INT32.pack(number))
        for item in items:
            write(self, item)

    def end_of_structure(self) -> None:
        """Write that there are no tagged fields, where the version has them."""
        if self._flexible:
            self._add(b"\0")


def _varint(value: int) -> bytes:
    if value < len(_ONE_BYTE):
        return _ONE_BYTE[value]
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
