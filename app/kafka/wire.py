"""Kafka's primitive types: written, and read strictly: never past the end, nothing left over."""

import struct
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

T = TypeVar("T")

AtOnce = Callable[[bytes | bytearray, int, int], tuple[list[T], int] | None]
"""Reads so many elements from an offset on; returns them and the offset after them, or null."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FLOAT64: Final = struct.Struct(">d")
_LONGEST_VARINT: Final = 5
_MORE_BYTES: Final = 0x80


class UnreadableAnswerError(Exception):
    """The bytes are not the answer that they should be."""


class Reader:
    """Reads one answer from its correlation id on.

    ``flexible`` versions have compact lengths (an unsigned varint, one too large, 0 for null) and
    tagged fields after every structure; the others have int16 and int32 lengths, -1 for null.

    Source: KIP-482, ``org.apache.kafka.common.protocol.types.Type``.
    """

    __slots__ = ("_at", "_data", "_flexible")

    def __init__(self, data: bytes | bytearray, *, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._at = 0

    def header(self) -> None:
        """Pass over the header, whose correlation id the connection has checked."""
        self.int32()
        self.end_of_structure()

    def int16(self) -> int:
        """Read an int16."""
        value: int = self._fixed(_INT16)
        return value

    def int32(self) -> int:
        """Read an int32."""
        value: int = self._fixed(_INT32)
        return value

    def float64(self) -> float:
        """Read a float64, NaN and the infinities included."""
        value: float = self._fixed(_FLOAT64)
        return value

    def string(self) -> str | None:
        """Read a nullable string."""
        length = self._varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        start = self._at
        self._at = end = start + length
        if end > len(self._data):
            raise _too_short()
        try:
            return self._data[start:end].decode()
        except UnicodeDecodeError as error:
            message = "a name is not UTF-8"
            raise UnreadableAnswerError(message) from error

    def text(self) -> str:
        """Read a string that must not be null."""
        value = self.string()
        if value is None:
            message = "a string is null that must not be"
            raise UnreadableAnswerError(message)
        return value

    def array(
        self, element: Callable[["Reader"], T], at_once: AtOnce[T] | None = None
    ) -> list[T] | None:
        """Read a nullable array: flexible ones by ``at_once`` if it can, else by ``element``."""
        length = self._varint() - 1 if self._flexible else self.int32()
        if length < 0:
            return None
        if length > len(self._data) - self._at:
            message = f"{length} elements in {len(self._data) - self._at} bytes"
            raise UnreadableAnswerError(message)
        if at_once is not None and self._flexible:
            elements = at_once(self._data, self._at, length)
            if elements is not None:
                self._at = elements[1]
                return elements[0]
        return [element(self) for _ in range(length)]

    def end_of_structure(self) -> None:
        """Pass over the tagged fields, which only flexible versions have; mostly there are none."""
        if self._flexible:
            number = self._varint()
            while number:
                self._varint()
                self._take(self._varint())
                number -= 1

    def end(self) -> None:
        """Make sure that nothing is left."""
        left = len(self._data) - self._at
        if left:
            message = f"{left} bytes too many"
            raise UnreadableAnswerError(message)

    def _fixed(self, layout: struct.Struct) -> Any:
        try:
            (value,) = layout.unpack_from(self._data, self._at)
        except struct.error as error:
            raise _too_short() from error
        self._at += layout.size
        return value

    def _take(self, length: int) -> bytes | bytearray:
        start = self._at
        self._at += length
        if self._at > len(self._data):
            raise _too_short()
        return self._data[start : self._at]

    def _varint(self) -> int:
        """Read an unsigned varint; nearly all have one byte."""
        try:
            byte = self._data[self._at]
        except IndexError as error:
            raise _too_short() from error
        self._at += 1
        return byte if byte < _MORE_BYTES else self._long_varint(byte & ~_MORE_BYTES)

    def _long_varint(self, value: int) -> int:
        for index in range(1, _LONGEST_VARINT):
            try:
                byte = self._data[self._at]
            except IndexError as error:
                raise _too_short() from error
            self._at += 1
            value |= (byte & ~_MORE_BYTES) << (7 * index)
            if byte < _MORE_BYTES:
                return value
        message = "a length is longer than five bytes"
        raise UnreadableAnswerError(message)


def _too_short() -> UnreadableAnswerError:
    return UnreadableAnswerError("the answer ends too early")


_INT8: Final = struct.Struct(">b")
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
