"""Domain values, times and documents as JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import orjson
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from starlette.responses import Response

from app.domain.alterations import Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import LONG_MAX, TWO_TO_63

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def rfc3339(time: datetime) -> str:
    """Return a time with a zone as ``2026-11-21T01:02:03.456Z``; finer digits are cut off."""
    return f"{time.astimezone(UTC).isoformat(timespec='milliseconds')[: -len('+00:00')]}Z"


def read_time(text: str) -> datetime:
    """Read an RFC 3339 time with any offset and any number of digits; return it in UTC.

    Raises:
        ValueError: Not such a time, or outside the years 1 to 9999.
    """
    if not _RFC3339.fullmatch(text):
        message = "not a time such as 2026-11-21T01:02:03.456Z"
        raise ValueError(message)
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError as error:
        message = "a time outside the years 1 to 9999"
        raise ValueError(message) from error


def json_bytes(document: Any) -> bytes:
    """Encode a document; lone surrogates are escaped, integers may have any size.

    Numbers that JSON lacks must be text already: see ``quota_value_json``.
    """
    try:
        return orjson.dumps(document)
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_texts(scalars: Sequence[Any]) -> list[bytes]:
    """Encode many strings and numbers, each like ``json_bytes``, in one call.

    Each stands on a line of its own: no text in JSON holds a line break.
    """
    if not scalars:
        return []
    try:
        whole = orjson.dumps(scalars, option=orjson.OPT_INDENT_2)
    except TypeError:
        return [json_bytes(scalar) for scalar in scalars]
    return whole.removeprefix(b"[\n  ").removesuffix(b"\n]").split(b",\n  ")


def model_bytes(model: BaseModel) -> bytes:
    """Encode a model; lone surrogates are escaped."""
    try:
        return model.model_dump_json(by_alias=True).encode()
    except PydanticSerializationError:  # a lone surrogate
        return json_bytes(model.model_dump(by_alias=True))


class JsonResponse(Response):
    """A JSON answer: a model of one, or a document."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content, with an end of line for terminals."""
        encode = model_bytes if isinstance(content, BaseModel) else json_bytes
        return encode(content) + b"\n"


JsonNumber = int | float | str

_TYPES: Final = tuple(str(kind) for kind in ENTITY_TYPES)

NOT_NUMBERS: Final[Mapping[str, float]] = {
    text: float(text) for text in ("NaN", "Infinity", "-Infinity")
}
"""Stored values that JSON lacks, by their text in documents."""

_TEXT_OF: Final = {str(value): text for text, value in NOT_NUMBERS.items()}


def quota_value_json(value: float) -> JsonNumber:
    """Return a stored value for JSON.

    Integral values have no fraction; 2^63 is 9223372036854775807; beyond it a float is written,
    because no 64-bit integer holds it; NaN and infinity are strings.
    """
    if value == TWO_TO_63:
        return LONG_MAX
    if abs(value) < TWO_TO_63:
        return int(value) if value.is_integer() else value
    return _TEXT_OF.get(str(value), value)


def plain_json(value: Any) -> Any:
    """Return a value of any kind for JSON; numbers are written as stored values are."""
    match value:
        case float() | Decimal():
            return quota_value_json(float(value))
        case int() if abs(value) >= TWO_TO_63:
            return quota_value_json(float(value))
        case datetime():
            return rfc3339(value)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(name): plain_json(member) for name, member in value.items()}
        case list() | tuple():
            return [plain_json(item) for item in value]
        case _:
            return value


def values_json(values: Values) -> dict[str, JsonNumber]:
    """Return the values of one entity, sorted by key."""
    return {str(key): quota_value_json(float(values[key])) for key in sorted(values)}


def entity_json(entity: ClientQuotaEntity) -> dict[str, str | None]:
    """Return an entity as type to name, user first; null is the default."""
    names = entity.as_dict()
    return {**{kind: names[kind] for kind in _TYPES if kind in names}, **names}


def quota_json(entity: ClientQuotaEntity, values: Values) -> dict[str, Any]:
    """Return one element of ``quotas``."""
    return {"entity": entity_json(entity), "entity_key": entity.key, "values": values_json(values)}


def child(pointer: str, token: str | int) -> str:
    """Return the pointer to a member or an item below ``pointer``."""
    return f"{pointer}/{str(token).replace('~', '~0').replace('/', '~1')}"


_QUOTED_CHARACTERS: Final = 80


def quote(text: str) -> str:
    """Quote text of the caller's for a sentence, shortened where it is long."""
    short = text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}…"
    return repr(short)


_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


def has_lone_surrogate(text: str) -> bool:
    """Tell whether a text holds half of a surrogate pair, so that it is no Unicode text."""
    return not text.isascii() and bool(_HALF_OF_A_PAIR.search(text))
