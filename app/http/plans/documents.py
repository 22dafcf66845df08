"""The document of a plan: an object, or a text in YAML or CSV; values may have units."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple, NotRequired

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from app.documents import API_VERSION
from app.documents.faults import Fault, UnreadableDocumentError
from app.documents.quotas import Document, read_yaml
from app.documents.tables import read_csv
from app.domain.alterations import DesiredValue
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import InvalidRequestError, UnreadableRequestError, Violation
from app.domain.plans import DesiredQuota
from app.domain.quantities import read_value
from app.http.alterations.models import MAX_ENTITIES, UP_TO_MAX_ENTITIES
from app.http.models import QUOTA_VALUES, Entity, EntityKey, quote
from app.http.validation import StrictModel, kind_of, own_error, strict

READERS: Final[Mapping[str, Callable[[str, int], Document]]] = {"yaml": read_yaml, "csv": read_csv}
"""By the format of a document that is text."""

DocumentFormat = Annotated[str, WithJsonSchema({"enum": list(READERS)})]


class _Text(NamedTuple):
    """A value that was text: what it says, or the sentence about it."""

    value: DesiredValue | None = None
    fault: str | None = None


def _read_texts(item: Any) -> Any:
    """Read the texts among an item's values, with the key that each is of."""
    values = item.get("values") if isinstance(item, dict) else None
    if not isinstance(values, dict) or not any(isinstance(text, str) for text in values.values()):
        return item
    entity = item.get("entity")
    read = {
        key: _text(entity, key, value) if isinstance(value, str) else value
        for key, value in values.items()
    }
    return {**item, "values": read}


def _text(entity: Any, key: str, text: str) -> _Text:
    try:
        return _Text(read_value(key, text))
    except ValueError as error:
        is_entity = isinstance(entity, dict) and all(
            isinstance(name, str | None) for name in entity.values()
        )
        return _Text(fault=f"{ClientQuotaEntity.of(entity)} {error}" if is_entity else str(error))


def _value(value: Any) -> DesiredValue | None:
    if isinstance(value, _Text):
        if value.fault is not None:
            raise own_error("unreadable-value", value.fault)
        return value.value
    if isinstance(value, Decimal):
        return value
    detail = f"This must be a number, or a text such as 4MiB or unset, not {kind_of(value)}."
    raise own_error("wrong-type", detail)


_VALUE_SCHEMA: Final = WithJsonSchema(
    {
        "description": (
            "A number; or a text: a number with a unit (`4MiB`, `500kB`, `80%`), `unlimited` (the "
            "key's largest value), `unset` (no value), `NaN` or `Infinity` as other tools stored "
            "it."
        ),
        "anyOf": [{"type": "number"}, {"type": "string"}],
    }
)


@strict
class DesiredItem(TypedDict):
    """The values that an entity should have."""

    entity: Entity
    entity_key: NotRequired[EntityKey]
    values: Annotated[
        dict[str, Annotated[Any, BeforeValidator(_value), _VALUE_SCHEMA]], QUOTA_VALUES
    ]


class DesiredQuotas(StrictModel):
    """The document that `GET /quotas` writes as YAML.

    Only what would change is held against the rules, so that an export with odd stored values
    plans to nothing.
    """

    apiVersion: Annotated[str, WithJsonSchema({"const": API_VERSION})]  # noqa: N815
    quotas: Annotated[
        list[Annotated[DesiredItem, BeforeValidator(_read_texts)]], UP_TO_MAX_ENTITIES
    ]
    """Each entity at most once."""

    def desired(self) -> tuple[DesiredQuota, ...]:
        """Return what is desired, in order."""
        return tuple(
            [
                DesiredQuota(ClientQuotaEntity.of(item["entity"]), item["values"])
                for item in self.quotas
            ]
        )

    def broken_rules(self) -> Iterator[Violation]:
        """Yield what is wrong with the version and with the keys of entities."""
        if self.apiVersion != API_VERSION:
            detail = f"{quote(self.apiVersion)} is unknown; this service reads {API_VERSION}."
            yield Violation("/document/apiVersion", "unknown-api-version", detail)
        for index, item in enumerate(self.quotas):
            key = ClientQuotaEntity.of(item["entity"]).key if "entity_key" in item else None
            if item.get("entity_key") != key:
                detail = "This is the key of another entity; leave it out, the entity says it all."
                pointer = f"/document/quotas/{index}/entity_key"
                yield Violation(pointer, "other-entity-key", detail)


class _OrText:
    """Describes an object that may also be a text."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        text = {"type": "string", "description": "The document as text; needs `format`."}
        return {"anyOf": [handler(core_schema), text]}


def _text_or_object(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, str) else validate(value)


DocumentOrText = Annotated[DesiredQuotas, WrapValidator(_text_or_object), _OrText()]
"""A ``DesiredQuotas``, or a ``str``."""

_RULES: Final = frozenset(
    {"duplicate-entity", "other-entity-key", "too-many-changes", "unknown-api-version"}
)
"""Faults of a document that can be read."""


def read_text(text: str, document_format: str) -> Document:
    """Read a document from text.

    Raises:
        UnreadableRequestError: With every fault and its line.
        InvalidRequestError: The same, of a document that can be read.
    """
    try:
        return READERS[document_format](text, MAX_ENTITIES)
    except UnreadableDocumentError as error:
        violations = [_violation(fault) for fault in error.faults]
        detail = "The document cannot be read; correct all that errors list."
        if all(violation.code in _RULES for violation in violations):
            raise InvalidRequestError(detail, violations=violations) from None
        raise UnreadableRequestError(detail, violations=violations) from None


def _violation(fault: Fault) -> Violation:
    is_sentence = fault.detail.endswith((".", "?"))
    detail = fault.detail if is_sentence else f"{fault.detail}."
    return Violation(f"/document{fault.pointer}", fault.code, detail, line=fault.line)


@contextmanager
def located(document: Document | None) -> Iterator[None]:
    """Let a refusal say the lines of a document that was text; null: it was none."""
    try:
        yield
    except InvalidRequestError as error:
        if document is not None:
            error.violations = [
                replace(violation, line=_line_of(violation.pointer, document))
                for violation in error.violations
            ]
        raise


def _line_of(pointer: str, document: Document) -> int | None:
    root, _, below = pointer.removeprefix("/").partition("/")
    return document.line_of(f"/{below}") if root == "document" else None
