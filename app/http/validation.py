"""What a request says: JSON read strictly, then Pydantic models, every fault in words of our own.

What RFC 8259 leaves open is refused, and numbers keep every digit.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    with_config,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import is_typeddict

from app.domain.alterations import read_decimal
from app.domain.errors import (
    MAX_VIOLATIONS,
    InvalidRequestError,
    QuotaError,
    UnreadableRequestError,
    Violation,
)
from app.http.models import child, has_lone_surrogate, quote

JsonValue: TypeAlias = "bool | Decimal | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_VALUES: Final = 200_000
"""How many objects and numbers a body may have: 10,000 entities with five changed keys each, and
their expected values, have fewer. Each takes some hundred bytes of memory while it is read."""


def parse_object(body: bytes) -> JsonObject:
    """Read a JSON object in UTF-8; every number becomes a ``Decimal``.

    Lone surrogates that were written as escapes stay in the strings; the rules for names judge
    them.

    Raises:
        UnreadableRequestError: Not UTF-8, not JSON (``NaN`` and ``Infinity`` included), a
            repeated key at any level, nested too deeply, or not an object at the top.
        InvalidRequestError: More objects and numbers than any request needs.
    """
    value = parse_json(body)
    if not isinstance(value, dict):
        raise _unreadable("wrong-type", "The body must be a JSON object.")
    return value


def parse_json(body: bytes) -> JsonValue:
    """Read any JSON value; else as ``parse_object``."""
    text = _decode(body)
    parser = _Parser()
    try:
        value: Any = json.loads(
            text,
            object_pairs_hook=parser.read_object,
            parse_float=parser.read_number,
            parse_int=parser.read_number,
            parse_constant=parser.read_literal,
        )
        flaws = list(islice(_flaws(value, ""), MAX_VIOLATIONS + 1)) if parser.flawed else []
    except RecursionError:
        detail = "The body nests too many objects and arrays in each other."
        raise _unreadable("nested-too-deeply", detail) from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        fault = error.msg.removesuffix(" at")
        raise _unreadable("not-json", f"The body is not JSON: {fault} at {position}.") from None
    if flaws:
        raise UnreadableRequestError(_FLAWED, violations=flaws)
    return value  # type: ignore[no-any-return]


_TOO_MANY: Final = (
    f"The body has over {MAX_VALUES} objects and numbers; a request takes 10,000 entities and "
    "10,000 changed keys."
)
_FLAWED: Final = "The body cannot be read without guessing; correct all that errors list."


@dataclass(slots=True)
class _RepeatedKeys:
    """Stands in for an object that names a key twice."""

    pairs: list[tuple[str, Any]]


@dataclass(slots=True)
class _Literal:
    """Stands in for NaN, Infinity or -Infinity."""

    text: str


@dataclass(slots=True)
class _Parser:
    flawed: bool = field(default=False)
    left: int = MAX_VALUES

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InvalidRequestError(
                _TOO_MANY, violations=[Violation("", "too-many-changes", _TOO_MANY)]
            )

    def read_number(self, text: str) -> Decimal:
        self._count()
        return read_decimal(text)

    def read_object(self, pairs: list[tuple[str, Any]]) -> Any:
        self._count()
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.flawed = True
        return _RepeatedKeys(pairs)

    def read_literal(self, text: str) -> _Literal:
        self.flawed = True
        return _Literal(text)


def _flaws(value: Any, pointer: str) -> Iterator[Violation]:
    match value:
        case _Literal(text):
            detail = f"{text} is not JSON; a number is finite."
            yield Violation(pointer, "not-json", detail)
        case _RepeatedKeys(pairs):
            yield from _repetitions(pairs, pointer)
            for name, member in pairs:
                yield from _flaws(member, child(pointer, name))
        case dict():
            for name, member in value.items():
                yield from _flaws(member, child(pointer, name))
        case list():
            for index, item in enumerate(value):
                yield from _flaws(item, child(pointer, index))


def _repetitions(pairs: list[tuple[str, Any]], pointer: str) -> Iterator[Violation]:
    for name, number in Counter(name for name, _ in pairs).items():
        if number > 1:
            detail = f"The key {quote(name)} is there more than once; send it once."
            yield Violation(child(pointer, name), "duplicate-json-key", detail)


def _decode(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"The body is not UTF-8: byte {error.start} cannot be read. Send UTF-8."
        raise _unreadable("not-utf-8", detail) from None
    if not text.strip():
        raise _unreadable("not-json", "The body is not JSON: it is empty.")
    if text.startswith("\ufeff"):
        raise _unreadable("not-json", "The body begins with a byte order mark; leave it out.")
    return text


def _unreadable(code: str, detail: str) -> UnreadableRequestError:
    return UnreadableRequestError(detail, violations=[Violation("", code, detail)])


Location = tuple[int | str, ...]
PydanticError = Mapping[str, Any]
M = TypeVar("M", bound=BaseModel)


_STRICT: Final = ConfigDict(strict=True, extra="forbid", frozen=True)
strict = with_config(_STRICT)
"""Declares that a ``TypedDict`` is read like a ``StrictModel``; where there are many, for speed."""


class StrictModel(BaseModel):
    """A model that converts nothing and refuses members that it does not have."""

    model_config = ConfigDict(**_STRICT, use_attribute_docstrings=True)


class RequestBody(StrictModel):
    """The body of a request. What can be read and breaks a rule is noted, not refused at once."""

    _violations: tuple[Violation, ...] = PrivateAttr(())

    def model_post_init(self, _: Any) -> None:
        """Judge it once: FastAPI validates the model again, and validators would run again."""
        self._violations = tuple(self.broken_rules())

    def broken_rules(self) -> Iterator[Violation]:
        """Yield the rules of its own members that a request breaks."""
        yield from ()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Rules of the request's own members that are broken; those members have defaults."""
        return self._violations


def own_error(code: str, detail: str, **context: Any) -> PydanticCustomError:
    """Return an error of a validator of ours: the code and the sentence of its violation."""
    code_type: Any = code
    return PydanticCustomError(code_type, "{detail}", {"detail": detail, **context})


CHUNK_ITEMS: Final = 100
"""So many items are validated in one call, which nothing else can run beside: 0.1 ms."""


def at_most(items: int, code: str, kafka_error: str | None = None) -> WrapValidator:
    """Read a list in chunks, until there are more faults than are listed.

    A longer list is refused before any item is looked at: the request breaks a rule, 422.
    """

    def read(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, list) or len(value) <= CHUNK_ITEMS:
            return validate(value)
        if len(value) > items:
            detail = f"{len(value)} items; a request takes at most {items}."
            raise own_error(code, detail, limit=items, kafka_error=kafka_error)
        return _read_in_chunks(value, validate)

    return WrapValidator(read)


def _read_in_chunks(items: list[Any], validate: ValidatorFunctionWrapHandler) -> list[Any]:
    read: list[Any] = []
    faults: list[InitErrorDetails] = []
    for begin in range(0, len(items), CHUNK_ITEMS):
        try:
            read += validate(items[begin : begin + CHUNK_ITEMS])
        except ValidationError as error:
            faults += [_shift(item, begin) for item in error.errors(include_url=False)]
        if len(faults) > MAX_VIOLATIONS:
            break
    if faults:
        raise ValidationError.from_exception_data("items", faults)
    return read


def _shift(error: Any, begin: int) -> InitErrorDetails:
    """Return a chunk's error with its index in the whole list."""
    index, *location = error["loc"]
    context = error.get("ctx", {})
    kind = error["type"]
    own = "detail" in context
    return InitErrorDetails(
        type=own_error(kind, context.pop("detail"), **context) if own else kind,
        loc=(begin + index, *location),
        input=error["input"],
        ctx=context,
    )


def validated(model: type[M], value: Any) -> M:
    """Return the model of a parsed body.

    Raises:
        UnreadableRequestError: Wrong types, unknown or missing members; every one of them.
        InvalidRequestError: A list that is too long.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors: Sequence[PydanticError] = error.errors(include_url=False)
    taken: list[PydanticError] = []
    while len(taken) <= MAX_VIOLATIONS and (hiding := _hiding(errors)):
        taken += [item for location in hiding for item in _take_out(value, location)]
        errors = _errors(model, value)
    raise refusal([*taken, *errors], model)


def _hiding(errors: Sequence[PydanticError]) -> list[Location]:
    """Return where a name holds half of a surrogate pair: Pydantic looks at nothing else there."""
    return [item["loc"] for item in errors if item["type"] == "string_unicode"]


def _take_out(value: Any, location: Location) -> list[PydanticError]:
    """Take such members out of the object at a location; return an error for each."""
    for token in location:
        value = value[token]
    names = list(islice(filter(has_lone_surrogate, value), MAX_VIOLATIONS + 1))
    return [
        {"type": "extra_forbidden", "loc": (*location, name), "input": value.pop(name)}
        for name in names
    ]


def _errors(model: type[BaseModel], value: Any) -> Sequence[PydanticError]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def refusal(errors: Sequence[PydanticError], model: type[BaseModel] | None = None) -> QuotaError:
    """Return the error for what Pydantic found; of many faults the first are listed."""
    for error in errors:
        if "limit" in error.get("ctx", ()):
            detail = str(error["msg"])
            broken = Violation(
                pointer_to(error["loc"]), error["type"], detail, error["ctx"]["kafka_error"]
            )
            return InvalidRequestError(detail, violations=[broken])
    violations = list(islice(violations_of(errors, model), MAX_VIOLATIONS + 1))
    detail = "The body cannot be read; correct all that errors list."
    return UnreadableRequestError(detail, violations=violations)


def violations_of(errors: Sequence[PydanticError], shape: Any) -> Iterator[Violation]:
    """Yield a violation for each error of what has a shape, such as a model."""
    for error in errors:
        fault = fault_of(error)
        detail = fault.detail(error)
        if error["type"] == "extra_forbidden":
            names = ", ".join(sorted(_members(_shape_in(shape), error["loc"][:-1])))
            detail = f"Unknown field {quote(str(error['loc'][-1]))}; it takes {names}."
        yield Violation(pointer_to(error["loc"]), fault.code, detail)


def pointer_to(location: Location) -> str:
    """Return the JSON pointer to a location of Pydantic's."""
    pointer = ""
    for token in location:
        pointer = child(pointer, token)
    return pointer


_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    Decimal: "a number",
    bool: "true or false",
    NoneType: "null",
}


def kind_of(value: JsonValue) -> str:
    """Name the JSON type of a value for a sentence."""
    return _KINDS.get(type(value), "something else")


class Fault(NamedTuple):
    """The code and the sentence for a type of error."""

    code: str
    detail: Callable[[PydanticError], str]


def _wrong_type(wanted: str) -> Fault:
    return Fault(
        "wrong-type", lambda error: f"This must be {wanted}, not {kind_of(error['input'])}."
    )


_FAULTS: Final[Mapping[str, Fault]] = {
    "missing": Fault("missing-field", lambda error: f"The field {error['loc'][-1]} is missing."),
    "extra_forbidden": Fault("unknown-field", lambda _: ""),
    **dict.fromkeys(("model_type", "dict_type"), _wrong_type("an object")),
    **dict.fromkeys(("list_type", "tuple_type"), _wrong_type("an array")),
    "string_type": _wrong_type("a string"),
    "bool_type": _wrong_type("true or false"),
    **dict.fromkeys(("decimal_type", "is_instance_of"), _wrong_type("a number")),
}


def fault_of(error: PydanticError) -> Fault:
    """Return the code and the sentence for an error; validators of ours bring both."""
    return _FAULTS.get(error["type"]) or Fault(error["type"], lambda error: str(error["msg"]))


def _members(shape: Any, location: Location) -> Sequence[str]:
    """Return the names of the members at a location of a model, a ``TypedDict`` in it perhaps."""
    for token in location:
        if isinstance(token, str):
            shape = _shape_in(_fields(shape).get(token))
    return list(_fields(shape))


def _fields(shape: Any) -> Mapping[str, Any]:
    """Return the annotations of a model's or typed dict's members, by JSON name."""
    if is_typeddict(shape):
        return get_type_hints(shape)
    fields = getattr(shape, "model_fields", {})
    return {field.alias or name: field.annotation for name, field in fields.items()}


def _shape_in(annotation: Any) -> Any:
    """Return the model in an annotation such as ``list[Model] | None``."""
    annotation = getattr(annotation, "__value__", annotation)
    if _fields(annotation):
        return annotation
    return next((found for item in get_args(annotation) if (found := _shape_in(item))), None)
