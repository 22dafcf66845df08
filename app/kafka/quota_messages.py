"""DescribeClientQuotas (48) and AlterClientQuotas (49), between the domain and the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome, Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.filters import ClientQuotaFilter, ClientQuotaFilterComponent, MatchType
from app.kafka.errors import alter_outcome, alter_refusal
from app.kafka.wire import Reader, UnreadableAnswerError, Writer
from app.service.ports.brokers import EntityVerdict


class UnusualError(Exception):
    """The bytes are not laid out as brokers lay them out; the strict reader is to judge them."""


AlteredEntry = tuple[ClientQuotaEntity, int, str | None]
"""The entity, the error code, the broker's words."""

_MORE_BYTES: Final = 0x80


def entries_at_once(
    data: bytes | bytearray, at: int, number: int
) -> tuple[list[AlteredEntry], int] | None:
    """Read so many entries of version 1 from an offset on.

    Returns:
        The entries and the offset after them; null where a code is negative, a length takes more
        than a byte, a field is tagged, a type is null or there twice, a name is not UTF-8, or the
        data ends early: all that is left to the reader that can say what is wrong.
    """
    entries = []
    try:
        for _ in range(number):
            entry, at = _entry(data, at)
            entries.append(entry)
    except (UnusualError, IndexError, UnicodeDecodeError):
        return None
    return (entries, at) if at <= len(data) else None


def _entry(data: bytes | bytearray, at: int) -> tuple[AlteredEntry, int]:
    code, length = data[at] << 8 | data[at + 1], data[at + 2]
    at += 3
    end = at + length - 1 if length else at
    number = data[end]
    if (data[at - 3] | length | number) & _MORE_BYTES or not number:
        raise UnusualError
    text = data[at:end].decode() if length else None
    at = end + 1
    parts = []
    for _ in range(number - 1):
        middle = at + data[at]
        size = data[middle]
        end = middle + size if size else middle + 1
        if (data[at] | size | data[end]) & _MORE_BYTES or middle == at or data[end]:
            raise UnusualError
        name = data[middle + 1 : end].decode() if size else None
        parts.append((data[at + 1 : middle].decode(), name))
        at = end + 1
    if data[at] or len({kind for kind, _ in parts}) < len(parts):
        raise UnusualError
    return (ClientQuotaEntity(tuple(sorted(parts))), code, text), at + 1


DESCRIBE_API: Final = 48
ALTER_API: Final = 49
NEWEST_VERSION: Final = 1
"""Version 1 differs from 0 in its encoding alone."""

_FLEXIBLE_FROM: Final = 1

_MATCH_TYPES: Final = {MatchType.EXACT: 0, MatchType.DEFAULT: 1, MatchType.SPECIFIED: 2}


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """A DescribeClientQuotas response; ``quotas`` is null where the code is not NONE."""

    error_code: int
    error_message: str | None
    throttle_time_ms: int
    quotas: Quotas | None


def describe_body(quota_filter: ClientQuotaFilter, version: int) -> bytes:
    """Write a describe. Source: KIP-546."""
    writer = Writer(flexible=version >= _FLEXIBLE_FROM)
    writer.array(quota_filter.components, _write_component)
    writer.flag(quota_filter.strict)
    writer.end_of_structure()
    return writer.body


def alter_body(
    alterations: Sequence[ClientQuotaAlteration], version: int, *, validate_only: bool
) -> bytes:
    """Write an alter; a removed key carries 0.0, as from the Java client. Source: KIP-546."""
    writer = Writer(flexible=version >= _FLEXIBLE_FROM)
    writer.array(alterations, _write_alteration)
    writer.flag(validate_only)
    writer.end_of_structure()
    return writer.body


def read_described(payload: bytes | bytearray, version: int) -> DescribeAnswer:
    """Read a describe's answer.

    Raises:
        UnreadableAnswerError: It is not such an answer.
    """
    reader = Reader(payload, flexible=version >= _FLEXIBLE_FROM)
    reader.header()
    throttle_time_ms, error_code = reader.int32(), reader.int16()
    error_message = reader.string()
    entries = reader.array(_described_entry)
    reader.end_of_structure()
    reader.end()
    if error_code == 0 and entries is None:
        message = "neither an error nor entries"
        raise UnreadableAnswerError(message)
    quotas = None if entries is None else dict(entries)
    return DescribeAnswer(error_code, error_message, throttle_time_ms, quotas)


def read_verdicts(
    payload: bytes | bytearray, version: int, *, validate_only: bool
) -> Mapping[ClientQuotaEntity, EntityVerdict]:
    """Read an alter's answer: verdicts by entity, whatever their order.

    An entity that is answered twice and differently is UNKNOWN.

    Raises:
        UnreadableAnswerError: It is not such an answer.
    """
    reader = Reader(payload, flexible=version >= _FLEXIBLE_FROM)
    reader.header()
    throttle_time_ms = reader.int32()
    entries = reader.array(_altered_entry, entries_at_once) or []
    reader.end_of_structure()
    reader.end()
    verdicts: dict[ClientQuotaEntity, EntityVerdict] = {}
    verdicts_by_code = {
        (code, text): EntityVerdict(
            alter_outcome(code, validate_only=validate_only),
            alter_refusal(code, text),
            throttle_time_ms,
        )
        for code, text in {(code, text) for _, code, text in entries}
    }
    for entity, code, text in entries:
        verdict = verdicts_by_code[code, text]
        if verdicts.setdefault(entity, verdict) != verdict:
            verdicts[entity] = EntityVerdict(Outcome.UNKNOWN, verdict.error, throttle_time_ms)
    return verdicts


def _write_component(writer: Writer, component: ClientQuotaFilterComponent) -> None:
    writer.text(component.entity_type)
    writer.int8(_MATCH_TYPES[component.match_type])
    writer.text(component.match)
    writer.end_of_structure()


def _write_alteration(writer: Writer, alteration: ClientQuotaAlteration) -> None:
    writer.array(alteration.entity.entries, _write_entity_component)
    writer.array(alteration.ops, _write_op)
    writer.end_of_structure()


def _write_entity_component(writer: Writer, part: tuple[str, str | None]) -> None:
    kind, name = part
    writer.text(kind)
    writer.text(name)
    writer.end_of_structure()


def _write_op(writer: Writer, op: Op) -> None:
    writer.text(op.key)
    writer.float64(0.0 if op.value is None else float(op.value))
    writer.flag(op.remove)
    writer.end_of_structure()


def _described_entry(reader: Reader) -> tuple[ClientQuotaEntity, dict[str, float]]:
    entity = _entity(reader)
    values = dict(reader.array(_value) or ())
    reader.end_of_structure()
    return entity, values


def _altered_entry(reader: Reader) -> AlteredEntry:
    code, text = reader.int16(), reader.string()
    entity = _entity(reader)
    reader.end_of_structure()
    return entity, code, text


def _entity(reader: Reader) -> ClientQuotaEntity:
    return ClientQuotaEntity.of(dict(reader.array(_entity_component) or ()))


def _entity_component(reader: Reader) -> tuple[str, str | None]:
    kind, name = reader.text(), reader.string()
    reader.end_of_structure()
    return kind, name


def _value(reader: Reader) -> tuple[str, float]:
    key, value = reader.text(), reader.float64()
    reader.end_of_structure()
    return key, value
