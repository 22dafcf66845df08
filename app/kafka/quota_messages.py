"""DescribeClientQuotas (48) and AlterClientQuotas (49): kafka-python's requests, strict reading.

Strictly: never past the end of the bytes, and with nothing left over.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome, Quotas
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter, MatchType
from app.kafka.connection import framed
from app.kafka.errors import INVALID, THROTTLED, UNAUTHORIZED, missing_acl, refusal
from app.service.ports.brokers import Verdict
from app.service.runtime.tasks import off_loop

T = TypeVar("T")

_FLEXIBLE_FROM: Final = 1
"""Version 1 differs from 0 in its encoding alone."""

_MATCH_TYPES: Final = {MatchType.EXACT: 0, MatchType.DEFAULT: 1, MatchType.SPECIFIED: 2}

_NO_ERROR: Final = 0

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FLOAT64: Final = struct.Struct(">d")
_VALUE_AND_REMOVE: Final = struct.Struct(">d?")
_MORE_BYTES: Final = 0x80
_SHIFTS: Final = (0, 7, 14, 21, 28)
"""Of the bytes of a varint, the least significant first."""


class UnreadableAnswerError(Exception):
    """The bytes are not the answer that they should be."""


class Reader:
    """Reads one answer from its correlation id on.

    ``flexible`` versions have compact lengths (an unsigned varint, one too large, 0 for null) and
    tagged fields after every structure; the others have int16 and int32 lengths, -1 for null.

    Source: KIP-482, ``org.apache.kafka.common.protocol.types.Type``.
    """

    __slots__ = ("_data", "_flexible", "at")

    def __init__(self, data: bytes | bytearray, *, flexible: bool, at: int = 0) -> None:
        self._data = data
        self._flexible = flexible
        self.at = at

    def header(self) -> None:
        """Pass over the header, whose correlation id the connection has checked."""
        self.number(_INT32)
        self.end_of_structure()

    def number(self, layout: struct.Struct) -> Any:
        """Read a number; a float64 may be NaN or infinite."""
        try:
            (value,) = layout.unpack_from(self._data, self.at)
        except struct.error as error:
            raise _too_short() from error
        self.at += layout.size
        return value

    def string(self) -> str | None:
        """Read a nullable string."""
        length = self.varint() - 1 if self._flexible else self.number(_INT16)
        if length < 0:
            return None
        try:
            return self._take(length).decode()
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

    def array(self, element: Callable[["Reader"], T]) -> list[T] | None:
        """Read a nullable array, each element by ``element``."""
        length = self.varint() - 1 if self._flexible else self.number(_INT32)
        if length < 0:
            return None
        if length > len(self._data) - self.at:
            message = f"{length} elements in {len(self._data) - self.at} bytes"
            raise UnreadableAnswerError(message)
        return [element(self) for _ in range(length)]

    def end_of_structure(self) -> None:
        """Pass over the tagged fields, which only flexible versions have; mostly there are none."""
        if self._flexible:
            for _ in range(self.varint()):
                self.varint()
                self._take(self.varint())

    def end(self) -> None:
        """Make sure that nothing is left."""
        left = len(self._data) - self.at
        if left:
            message = f"{left} bytes too many"
            raise UnreadableAnswerError(message)

    def _take(self, length: int) -> bytes | bytearray:
        start = self.at
        self.at += length
        if self.at > len(self._data):
            raise _too_short()
        return self._data[start : self.at]

    def varint(self) -> int:
        """Read an unsigned number of up to five bytes."""
        value = 0
        for shift in _SHIFTS:
            try:
                byte = self._data[self.at]
            except IndexError as error:
                raise _too_short() from error
            self.at += 1
            value |= (byte & ~_MORE_BYTES) << shift
            if byte < _MORE_BYTES:
                return value
        message = "a length is longer than five bytes"
        raise UnreadableAnswerError(message)


def _too_short() -> UnreadableAnswerError:
    return UnreadableAnswerError("the answer ends too early")


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """A DescribeClientQuotas response; ``quotas`` is null where the code is not NONE."""

    error_code: int
    error_message: str | None
    throttle_time_ms: int
    quotas: Quotas | None


def describe_request(quota_filter: ClientQuotaFilter) -> DescribeClientQuotasRequest:
    """Return a describe. Source: KIP-546."""
    components = [
        (component.entity_type, _MATCH_TYPES[component.match_type], component.match)
        for component in quota_filter.components
    ]
    return DescribeClientQuotasRequest(components=components, strict=quota_filter.strict)


def alter_frame(
    alterations: Sequence[ClientQuotaAlteration],
    version: int,
    correlation_id: int,
    *,
    validate_only: bool,
) -> bytes:
    """Return a whole alter; a removed key carries 0.0, as from the Java client. Source: KIP-546.

    The entries are written here, a fifth of what kafka-python takes for them; what stands around
    them is its request without any.

    Raises:
        ValueError: A text is not Unicode, such as a lone surrogate.
        struct.error: A text is longer than the protocol can say.
    """
    empty = AlterClientQuotasRequest(entries=[], validate_only=validate_only)
    around = framed(empty, version, correlation_id)[_INT32.size :]
    layout = _COMPACT if version >= _FLEXIBLE_FROM else _PLAIN
    end = len(around) - 1 - len(layout.end_of_structure)  # before validate_only
    begin = end - len(layout.length(0))
    whole = b"".join([around[:begin], _entries(alterations, layout), around[end:]])
    return _INT32.pack(len(whole)) + whole


class _Layout(NamedTuple):
    """How a version writes a text, the length of an array, and the end of a structure."""

    text: Callable[[str | None], bytes]
    length: Callable[[int], bytes]
    end_of_structure: bytes


def _entries(alterations: Sequence[ClientQuotaAlteration], layout: _Layout) -> bytes:
    """Return an array of entries: entity and operations of each."""
    text, length, end_of_structure = layout
    word = lru_cache(text)  # entity types and keys: a few, in each entry again
    written = [length(len(alterations))]
    for alteration in alterations:
        written.append(length(len(alteration.entity.entries)))
        for kind, name in alteration.entity.entries:
            written += (word(kind), text(name), end_of_structure)
        written.append(length(len(alteration.ops)))
        for op in alteration.ops:
            value = 0.0 if op.value is None else float(op.value)
            written += (word(op.key), _VALUE_AND_REMOVE.pack(value, op.remove), end_of_structure)
        written.append(end_of_structure)
    return b"".join(written)


def _text(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _compact_text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return _compact_length(len(raw)) + raw


@lru_cache(maxsize=1024)
def _compact_length(length: int) -> bytes:
    written, number = bytearray(), length + 1
    while number >= _MORE_BYTES:
        written.append(number % _MORE_BYTES | _MORE_BYTES)
        number //= _MORE_BYTES
    written.append(number)
    return bytes(written)


_PLAIN: Final = _Layout(_text, _INT32.pack, b"")
_COMPACT: Final = _Layout(_compact_text, _compact_length, b"\0")


def read_described(payload: bytes | bytearray, version: int) -> DescribeAnswer:
    """Read a describe's answer.

    Raises:
        UnreadableAnswerError: It is not such an answer.
    """
    reader = Reader(payload, flexible=version >= _FLEXIBLE_FROM)
    reader.header()
    throttle_time_ms, error_code = reader.number(_INT32), reader.number(_INT16)
    error_message = reader.string()
    entries = reader.array(_described_entry)
    reader.end_of_structure()
    reader.end()
    if error_code == _NO_ERROR and entries is None:
        message = "neither an error nor entries"
        raise UnreadableAnswerError(message)
    quotas = None if error_code or entries is None else dict(entries)
    return DescribeAnswer(error_code, error_message, throttle_time_ms, quotas)


def read_verdicts(
    payload: bytes | bytearray, version: int, *, validate_only: bool
) -> Mapping[ClientQuotaEntity, Verdict]:
    """Read an alter's answer: verdicts by entity, whatever their order.

    An entity that is answered twice and differently is UNKNOWN.

    Raises:
        UnreadableAnswerError: It is not such an answer.
    """
    reader = Reader(payload, flexible=version >= _FLEXIBLE_FROM)
    reader.header()
    throttle_time_ms = reader.number(_INT32)
    entries = reader.array(_altered_entry) or []
    reader.end_of_structure()
    reader.end()
    verdicts: dict[ClientQuotaEntity, Verdict] = {}
    verdicts_by_code = {
        (code, text): Verdict(
            alter_outcome(code, validate_only=validate_only),
            alter_refusal(code, text),
            throttle_time_ms,
        )
        for code, text in {(code, text) for _, code, text in entries}
    }
    for entity, code, text in entries:
        verdict = verdicts_by_code[code, text]
        if verdicts.setdefault(entity, verdict) != verdict:
            verdicts[entity] = Verdict(Outcome.UNKNOWN, verdict.error, throttle_time_ms)
    return verdicts


def alter_outcome(code: int, *, validate_only: bool) -> Outcome:
    """Return what a code says about one entity of an alteration."""
    if code == _NO_ERROR:
        return Outcome.VALIDATED if validate_only else Outcome.APPLIED
    is_refused = code in {UNAUTHORIZED, THROTTLED, *INVALID}
    return Outcome.REFUSED if is_refused else Outcome.UNKNOWN


def alter_refusal(code: int, text: str | None) -> KafkaRefusal | None:
    """Return why an entity was not applied, in the broker's words; null for success."""
    if code == _NO_ERROR:
        return None
    refused = refusal(code, text)
    if code == UNAUTHORIZED:
        return replace(refused, message=f"{refused.message} {missing_acl('ALTER_CONFIGS')}")
    return refused


def _described_entry(reader: Reader) -> tuple[ClientQuotaEntity, dict[str, float]]:
    entity = _entity(reader)
    values = dict(reader.array(_value) or ())
    reader.end_of_structure()
    return entity, values


def _altered_entry(reader: Reader) -> tuple[ClientQuotaEntity, int, str | None]:
    code, text = reader.number(_INT16), reader.string()
    entity = _entity(reader)
    reader.end_of_structure()
    return entity, code, text


def _entity(reader: Reader) -> ClientQuotaEntity:
    return ClientQuotaEntity(tuple(sorted(dict(reader.array(_entity_component) or ()).items())))


def _entity_component(reader: Reader) -> tuple[str, str | None]:
    kind, name = reader.text(), reader.string()
    reader.end_of_structure()
    return kind, name


def _value(reader: Reader) -> tuple[str, float]:
    key, value = reader.text(), reader.number(_FLOAT64)
    reader.end_of_structure()
    return key, value


_BYTES_OF_AN_ENTRY: Final = 300
"""Reading so many takes as long as one item of other work."""


async def decoded(
    read: Callable[[bytes | bytearray, int], T], payload: bytes | bytearray, version: int
) -> T:
    """Read an answer; a large one in a thread."""
    return await off_loop(len(payload) // _BYTES_OF_AN_ENTRY, read, payload, version)
