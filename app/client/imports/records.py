"""Lists of quotas, as commands and interfaces print them: a record for each entity.

The shapes: rpk (``entity`` is a list), our own documents and Kestra (``entity`` is a mapping),
kafka-ui (``quotas`` beside the names), Aiven and Huawei (names and values side by side).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.client.documents import reading
from app.client.imports.collection import Collection, NotReadError, quota_key
from app.client.imports.rpk import read_rpk_record
from app.client.imports.trees import (
    add_value,
    add_values,
    is_null,
    is_true,
    is_zero,
    items,
    member,
    name_at,
)
from app.documents.nodes import kind_of, line_of, members_of
from app.documents.tables import read_csv
from app.domain.entities import show_entity
from app.domain.quantities import UNSET, read_value

_NAMES: Final[Mapping[str, str]] = {
    "user": "user",
    "client-id": "client-id",
    "client_id": "client-id",
    "clientId": "client-id",
    "client": "client-id",
    "ip": "ip",
}
"""By how tools spell an entity type: Kafka's spelling."""

_DEFAULTS: Final[Mapping[str, str]] = {
    f"{field}{mark}default": kind for field, kind in _NAMES.items() for mark in ("-", "_")
}
_KEYWORD: Final = "default"
"""What Aiven calls the default entity of a type."""


def records_of(nodes: Sequence[Node]) -> list[Node]:
    """Return the records: the items of a list, or of the member ``quotas``."""
    return [
        record
        for node in nodes
        for record in (items(node) if isinstance(node, SequenceNode) else items(node, "quotas"))
    ]


def is_rpk(nodes: Sequence[Node]) -> bool:
    """Tell whether the entities are lists, as only rpk writes them."""
    return _has(lambda record: isinstance(member(record, "entity"), SequenceNode))(nodes)


def is_kafka_ui(nodes: Sequence[Node]) -> bool:
    """Tell whether values stand in ``quotas`` beside the names."""
    return _has(lambda record: _shape_of(record) is _read_kafka_ui)(nodes)


def is_flat(nodes: Sequence[Node]) -> bool:
    """Tell whether names and values stand side by side."""
    return _has(lambda record: _shape_of(record) is read_flat)(nodes)


def is_document(nodes: Sequence[Node]) -> bool:
    """Tell whether entities are mappings, as in our own documents."""
    return _has(lambda record: _shape_of(record) is _read_mapping)(nodes)


def _has(condition: Callable[[Node], bool]) -> Callable[[Sequence[Node]], bool]:
    """Return what tells whether a file is such a list; an empty list is one of any shape."""

    def recognise(nodes: Sequence[Node]) -> bool:
        records = records_of(nodes)
        if records:
            shaped = [record for record in records if _shape_of(record) is not None]
            return any(condition(record) for record in shaped)
        return bool(nodes) and all(_is_empty(node) for node in nodes)

    return recognise


def _is_empty(node: Node) -> bool:
    quotas = dict(members_of(node)).get("quotas")
    return quotas is not None and (not quotas.value or is_null(quotas))


def read_records(nodes: Sequence[Node], into: Collection) -> None:
    """Read each record by its shape."""
    for record in records_of(nodes):
        read = _shape_of(record) or _refuse
        try:
            read(record, into)
        except NotReadError as error:
            into.lose(line_of(record), f"{_text_of(record)}: {error}")
            into.ignored.add(id(record))


def _refuse(record: Node, _: Collection) -> None:
    raise NotReadError(f"a record of quotas that is {kind_of(record).value} of no tool's shape")


def _text_of(record: Node) -> str:
    names = {key: value for key, value in members_of(record) if key in _NAMES}
    texts = [f"{key}={value.value}" for key, value in names.items() if _is_scalar(value)]
    return f"{{{', '.join(texts)}}}" if texts else "a record"


def _is_scalar(node: Node) -> bool:
    return isinstance(node, ScalarNode)


def _shape_of(record: Node) -> Callable[[Node, Collection], None] | None:
    entity = member(record, "entity")
    if isinstance(entity, SequenceNode):
        return read_rpk_record
    if isinstance(entity, MappingNode):
        return _read_mapping
    names = [field for field, _ in members_of(record) if field in _NAMES or field in _DEFAULTS]
    if isinstance(member(record, "quotas"), MappingNode):
        return _read_kafka_ui
    has_values = any(quota_key(field) for field, _ in members_of(record))
    return read_flat if names and has_values else None


def _read_mapping(record: Node, into: Collection) -> None:
    """Read a record of our own documents or of Kestra: null is the default."""
    names = member(record, "entity")
    fields = [] if names is None else members_of(names)
    entity = {field: name_at(names, field) for field, _ in fields} if names is not None else {}
    values = member(record, "values") or member(record, "quotas")
    temporary = member(record, "temporary")
    for key, _ in [] if temporary is None else members_of(temporary):
        into.warn(line_of(record), f"{show_entity(entity)} {key} is temporary, here it is for good")
    beside = [member(record, field) for field in ("temporary", "owners")]
    into.ignored.update(id(node) for node in beside if node is not None)
    if values is None or not _add_written(into, entity, values):
        into.count("entity without values", "entities without values")


def read_table(content: str, into: Collection) -> None:
    """Read CSV of our own, long or short.

    Raises:
        UsageError: With every fault.
    """
    with reading(into.file):
        document = read_csv(content)
    for quota, lines in zip(document.quotas, document.lines, strict=True):
        if not quota.values:
            into.count("entity without values", "entities without values")
        for key, value in quota.values.items():
            written = UNSET if value is None else str(value)
            into.add(quota.entity.as_dict(), key, written, lines.values[key])


def _add_written(into: Collection, entity: Mapping[str, str | None], values: Node) -> bool:
    """Take values as documents may have them, with a unit or as a word such as ``unlimited``."""
    for field, value in members_of(values):
        key = quota_key(field)
        if key is not None and isinstance(value, ScalarNode):
            with suppress(ValueError):
                written = read_value(key, str(value.value))
                value.value = str(value.value) if written is None else str(written)
    return add_values(into, entity, values)


_ALIKE: Final = (
    "null stands for a default entity and for a type that is not there; it is read as not there"
)


def _read_kafka_ui(record: Node, into: Collection) -> None:
    """Read a record of ``GET /api/clusters/{name}/clientquotas``."""
    fields = [field for field, _ in members_of(record) if field in _NAMES]
    names = {_NAMES[field]: name_at(record, field) for field in fields}
    entity = {kind: name for kind, name in names.items() if name is not None}
    values = member(record, "quotas")
    if not entity:
        raise NotReadError("without a name: the file does not say which default it is")
    into.warn(1, _ALIKE)
    if values is None or not add_values(into, entity, values):
        into.count("entity without values", "entities without values")


def read_flat(record: Node, into: Collection) -> None:
    """Read names and values that stand side by side, as Aiven and Huawei write them.

    There 0 and null are values that are not set. ``default`` as a name is the default where there
    are no members such as ``user-default`` for it.

    Raises:
        NotReadError: It has no name that this file shows.
    """
    entity = dict(_flat_entity(record))
    if not entity:
        raise NotReadError("it has neither user nor client-id")
    is_any = False
    for field, value in members_of(record):
        if quota_key(field) is None:
            continue
        into.read.add(id(value))
        if not is_null(value) and not is_zero(value):
            is_any = True
            add_value(into, entity, field, value)
    if not is_any:
        into.count("entity without values", "entities without values")


def _flat_entity(record: Node) -> Iterator[tuple[str, str | None]]:
    fields = [field for field, _ in members_of(record)]
    has_flags = any(field in _DEFAULTS for field in fields)
    for field in fields:
        if field in _DEFAULTS and is_true(record, field):
            yield _DEFAULTS[field], None
        elif field in _NAMES:
            name = name_at(record, field)
            if name:
                yield _NAMES[field], None if name == _KEYWORD and not has_flags else name
