"""Query strings, read strictly into Pydantic models, and page tokens.

The models describe the parameters, too.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, Final, Generic, TypeVar, get_origin
from urllib.parse import unquote_to_bytes

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from app.domain.entities import (
    ANY_TYPE,
    ENTITY_TYPES,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.domain.errors import (
    BadPageTokenError,
    InvalidRequestError,
    UnreadableRequestError,
    Violation,
)
from app.domain.expiry import DURATION_PATTERN, read_duration
from app.domain.validation import filter_violations
from app.http.models import json_bytes, quote, read_time
from app.http.validation import StrictModel, fault_of, own_error
from app.service.runtime.clock import utc_now

_END_OF_TYPE: Final = re.compile("[=:^~]")

_WORDS: Final[Mapping[str, MatchType]] = {
    "default": MatchType.DEFAULT,
    "any": MatchType.SPECIFIED,
    "absent": MatchType.ABSENT,
}
_SUBSTRING_TYPES: Final[Mapping[str, MatchType]] = {"^": MatchType.PREFIX, "~": MatchType.CONTAINS}


def parse_filter(components: "Filter", *, strict: bool = False) -> ClientQuotaFilter:
    """Return the filter of components in the grammar; they are ANDed.

    The first of ``=``, ``:``, ``^`` and ``~`` ends the type, so a name needs no escape of its own.
    Types are not judged here: ``filter_violations`` does.
    """
    return ClientQuotaFilter(tuple(filter(None, map(parse_component, components))), strict)


GRAMMAR: Final = (
    "Write user=NAME, user^=BEGINNING, user~=TEXT, user:default, user:any, user:absent or user; "
    "likewise for client-id and ip; or any~=TEXT for a text in some name."
)
"""What to write, for people."""


def parse_component(text: str) -> ClientQuotaFilterComponent | None:
    """Read one component; null if it is outside the grammar."""
    end = _END_OF_TYPE.search(text)
    if end is None:
        return ClientQuotaFilterComponent.of_entity_type(text) if text else None
    kind, mark, rest = text[: end.start()], end.group(), text[end.end() :]
    if mark == "=":
        return ClientQuotaFilterComponent.of_entity(kind, rest)
    if mark == ":":
        match_type = _WORDS.get(rest)
        return ClientQuotaFilterComponent(kind, match_type) if match_type else None
    if rest.startswith("="):
        return ClientQuotaFilterComponent(kind, _SUBSTRING_TYPES[mark], rest[1:])
    return None


MAX_PAGE_SIZE: Final = 10_000
MAX_AGE_MS: Final = 3_600_000
"""The largest ``max_age_ms``, in milliseconds."""

P = TypeVar("P")
Q = TypeVar("Q", bound="QueryParameters")
Schema = dict[str, Any]


class QueryParameters(StrictModel):
    """The parameters of a query by name; a parameter that may repeat is a tuple."""


class StrictQuery(Generic[Q]):
    """A dependency behind the guard: the query of a request.

    Args:
        model: The parameters.
    """

    def __init__(self, model: type[Q]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> Q:
        """Return the parameters."""
        return read_query(request.scope["query_string"], self.model)


def read_query(query_string: bytes, model: type[Q]) -> Q:
    """Read a query string as it came over the wire.

    Raises:
        UnreadableRequestError: Escapes that are not UTF-8, unknown parameters, a repeated single
            one, text that is not of the parameter's kind; every one of them.
        InvalidRequestError: A number out of range or an unknown word; every one of them, and with
            them what a broker would refuse in a filter. That alone is judged by who asks it.
    """
    unreadable: list[Violation] = []
    texts: dict[str, list[str]] = {}
    for name, text in _pairs(query_string, unreadable):
        texts.setdefault(name, []).append(text)
    repeats = _repeats(model)
    values: dict[str, Any] = {}
    for name, all_ in texts.items():
        values[name] = tuple(all_) if repeats.get(name) else all_[0]
        if len(all_) > 1 and not repeats.get(name, True):
            detail = f"{name} stands there {len(all_)} times; send it once."
            unreadable.append(Violation(name, "repeated-parameter", detail))
    broken: list[Violation] = []
    try:
        query = model.model_validate(values)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            judged = _violation(fault, repeats)
            (broken if fault["type"] in _BROKEN else unreadable).append(judged)
    if unreadable:
        raise UnreadableRequestError(
            "The query cannot be read; correct every parameter in errors.", violations=unreadable
        )
    if broken:
        broken.extend(_refused_by_brokers(values, model))
        raise InvalidRequestError(
            "The query breaks a rule; correct every parameter in errors.", violations=broken
        )
    return query


@cache
def _repeats(model: type[BaseModel]) -> Mapping[str, bool]:
    """Return whether each parameter may repeat, by name."""
    return {
        field.alias or name: get_origin(field.annotation) is tuple
        for name, field in model.model_fields.items()
    }


_BROKEN: Final = frozenset({"greater_than_equal", "less_than_equal", "literal_error", "enum"})
"""What can be read and breaks a rule: 422."""


def _violation(error: Mapping[str, Any], parameters: Iterable[str]) -> Violation:
    name = str(error["loc"][0])
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            names = ", ".join(parameters) or "none"
            detail = f"Unknown parameter {quote(name)}; it takes: {names}."
            return Violation(name, "unknown-parameter", detail)
        case "greater_than_equal":
            return Violation(name, "out-of-range", f"{name} must be at least {context['ge']}.")
        case "less_than_equal":
            return Violation(name, "out-of-range", f"{name} must be at most {context['le']}.")
        case "literal_error" | "enum":
            detail = f"{quote(error['input'])} is unknown; {name} is {context['expected']}."
            return Violation(name, "unknown-word", detail)
        case _:
            fault = fault_of(error)
            return Violation(name, fault.code, fault.detail(error))


def _refused_by_brokers(values: Mapping[str, Any], model: type[BaseModel]) -> Iterator[Violation]:
    for name, field in model.model_fields.items():
        if _FILTER in field.metadata:
            yield from filter_violations(parse_filter(values.get(name, ())), name)


_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def _pairs(query_string: bytes, unreadable: list[Violation]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts; note what cannot be read."""
    for pair in query_string.split(b"&"):
        if not pair:
            continue
        raw_name, _, raw_text = pair.partition(b"=")
        name, text = _decode(raw_name), _decode(raw_text)
        if name is None or text is None:
            pointer = name or raw_name.decode("ascii", "backslashreplace")
            detail = "The percent-encoding is not that of UTF-8 text; encode the text anew."
            unreadable.append(Violation(pointer, "bad-percent-encoding", detail))
        else:
            yield name, text


def _decode(raw: bytes) -> str | None:
    if _BAD_ESCAPE.search(raw):
        return None
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        return None


_INTEGER: Final = re.compile("-?[0-9]+")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONGEST_INTEGER: Final = 20


def _wrong_type(name: str | None, form: str, text: str) -> PydanticCustomError:
    detail = f"{name} must be {form}, not {quote(text)}."
    return own_error("wrong-type", detail)


def _read_flag(text: str, info: ValidationInfo) -> bool:
    if text not in {"true", "false"}:
        raise _wrong_type(info.field_name, "true or false", text)
    return text == "true"


def _read_integer(text: str, info: ValidationInfo) -> int:
    if not _INTEGER.fullmatch(text):
        raise _wrong_type(info.field_name, "a whole number in digits", text)
    digits = text.lstrip("-0") or "0"
    number = int(digits) if len(digits) <= _LONGEST_INTEGER else 10**_LONGEST_INTEGER
    return -number if text.startswith("-") else number


def _read_number(text: str, info: ValidationInfo) -> float:
    if not _NUMBER.fullmatch(text):
        raise _wrong_type(info.field_name, "a number such as 0.8", text)
    return float(text)


def _read_time(text: str, info: ValidationInfo) -> datetime:
    try:
        return read_time(text)
    except ValueError:
        form = "a time such as 2026-11-21T01:02:03.456Z (a plus sign is written %2B)"
        raise _wrong_type(info.field_name, form, text) from None


def _read_past(text: str, info: ValidationInfo) -> datetime | timedelta:
    with suppress(ValueError):
        return read_duration(text)
    return _read_time(text, info)


def past_time(value: datetime | timedelta | None) -> datetime | None:
    """Return the time of a ``PastTime``, by this machine's clock."""
    if not isinstance(value, timedelta):
        return value
    now = utc_now()
    return now - min(value, now - datetime.min.replace(tzinfo=UTC))


def _check_component(text: str) -> str:
    if parse_component(text) is None:
        raise own_error("unreadable-filter", f"{quote(text)} cannot be read. {GRAMMAR}")
    return text


Flag = Annotated[bool, BeforeValidator(_read_flag)]
READ_INTEGER: Final = BeforeValidator(_read_integer)
"""Stands behind the bounds of a parameter that is a whole number."""

READ_NUMBER: Final = BeforeValidator(_read_number)
"""Stands behind the bounds of a parameter that is a number."""
TimeParameter = Annotated[
    datetime, BeforeValidator(_read_time), WithJsonSchema({"type": "string", "format": "date-time"})
]

PastTime = Annotated[
    datetime | timedelta,
    BeforeValidator(_read_past),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "string", "pattern": DURATION_PATTERN},
            ]
        }
    ),
]
"""A time, or how long ago; ``past_time`` works it out."""

Since = Annotated[TimeParameter | None, Field(examples=["2026-11-20T00:00:00Z"])]
Until = Annotated[TimeParameter | None, Field(examples=["2026-11-21T00:00:00Z"])]

COMPONENT_SCHEMA: Final[Schema] = {
    "type": "string",
    "pattern": rf"^(({'|'.join(ENTITY_TYPES)})($|[\^~]?=|:(default|any|absent)$)|{ANY_TYPE}~=)",
}
"""Names may hold any character."""

_FILTER: Final = WithJsonSchema({"type": "array", "items": COMPONENT_SCHEMA})

Filter = Annotated[tuple[Annotated[str, AfterValidator(_check_component)], ...], _FILTER]
"""Components in the grammar of ``filter_query``, as they were written."""

PageSize = Annotated[
    int, Field(ge=1, le=MAX_PAGE_SIZE), READ_INTEGER, Field(description="Rows in one page.")
]

PageToken = Annotated[
    str | None,
    Field(
        description=(
            "The `next_page_token` of the page before. It belongs to one query, so its conditions "
            "stay as they were."
        ),
        json_schema_extra={"pattern": "^[A-Za-z0-9_-]+$"},
    ),
]


def openapi_parameters(model: type[BaseModel]) -> list[Schema]:
    """Return the OpenAPI parameter objects of a model's members."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    return [
        _openapi_parameter(name, _inline(member, definitions))
        for name, member in schema.get("properties", {}).items()
    ]


def _openapi_parameter(name: str, member: Schema) -> Schema:
    description = member.pop("description")
    for example in member.pop("examples", ()):  # itself it would be sent by "Try it out" of /docs
        values = example if isinstance(example, list) else [example]
        description += f" For example {', '.join(f'`{value}`' for value in values)}."
    member.pop("title", None)
    if member.get("default") in (None, []):
        member.pop("default", None)
    choices = [item for item in member.pop("anyOf", ()) if item != {"type": "null"}]
    further = choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": {**member, **further},
    }


def _inline(member: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(member, list):
        return [_inline(item, definitions) for item in member]
    if not isinstance(member, dict):
        return member
    if "$ref" in member:
        name = member["$ref"].rpartition("/")[2]
        member = {**definitions[name], **{k: v for k, v in member.items() if k != "$ref"}}
        member.pop("title", None)
    return {name: _inline(item, definitions) for name, item in member.items()}


# A page token is a position in the answer to one query, which any process can read.

_DIGEST_BYTES: Final = 16


def query_fingerprint(route: str, conditions: Mapping[str, Any]) -> str:
    """Return what a token is bound to: the route and every condition but page and token.

    Put the principal in where rows depend on it.
    """
    return hashlib.sha256(
        json.dumps([route, conditions], sort_keys=True, default=str).encode()
    ).hexdigest()


def page_token(position: object, fingerprint: str) -> str | None:
    """Return the token for a position (JSON values, times) in the answer to a query, null for null.

    Nothing in it is secret: its digest finds errors of copying and tokens of other queries, and the
    caller's rights are checked for each page.
    """
    return None if position is None else _token_of(json_bytes(position), fingerprint)


def read_page_token(token: str | None, fingerprint: str, position: TypeAdapter[P]) -> P | None:
    """Return the position that a token holds, null for null; a caller may have made it up.

    Raises:
        BadPageTokenError: It cannot be read, is of another query, or holds no such position.
    """
    if token is None:
        return None
    with suppress(ValueError, RecursionError):
        raw = base64.b64decode(f"{token}{'=' * (-len(token) % 4)}", b"-_", validate=True)
        body = raw[_DIGEST_BYTES:]
        if _token_of(body, fingerprint) == token:
            return position.validate_python(json.loads(body))
    raise BadPageTokenError


def _token_of(body: bytes, fingerprint: str) -> str:
    digest = hashlib.sha256(fingerprint.encode() + b"\n" + body).digest()[:_DIGEST_BYTES]
    return base64.urlsafe_b64encode(digest + body).rstrip(b"=").decode("ascii")
