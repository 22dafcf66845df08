"""The body of ``POST /analytics/runs``."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from app.domain.pipeline_runs import OptionValue
from app.http.json_pointer import child
from app.http.reading import ObjectReader, Reading
from app.http.strict_json import JsonObject, JsonValue

_FIELDS: Final = frozenset({"job", "options"})
_LARGEST: Final = 2**31


@dataclass(frozen=True, slots=True)
class RunRequestBody:
    """Which job, with which options; a number that is not whole is 0."""

    job: str
    options: Mapping[str, OptionValue]


def read_run_request(body: JsonObject) -> RunRequestBody:
    """Read the body.

    Raises:
        UnreadableRequestError: Wrong types, unknown or missing fields; every one of them.
    """
    reading = Reading()
    reader = ObjectReader.of(body, "", _FIELDS, reading) or ObjectReader({}, "", reading)
    reader.need("job")
    job = reader.text("job")
    given = reader.object("options") or {}
    options = {
        name: _value(member, child("/options", name), reading) for name, member in given.items()
    }
    reading.refuse_if_unreadable()
    return RunRequestBody(job or "", options)


def _value(member: JsonValue, pointer: str, reading: Reading) -> OptionValue:
    match member:
        case str():
            return member
        case Decimal():
            whole = member == member.to_integral_value() and abs(member) < _LARGEST
            return int(member) if whole else 0
        case list():
            return tuple(
                _text(item, f"{pointer}/{index}", reading) for index, item in enumerate(member)
            )
        case _:
            reading.wrong_type(pointer, "a string, a number or an array of strings", member)
            return ""


def _text(item: JsonValue, pointer: str, reading: Reading) -> str:
    if isinstance(item, str):
        return item
    reading.wrong_type(pointer, "a string", item)
    return ""
