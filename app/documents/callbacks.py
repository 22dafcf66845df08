"""The file of a quota callback: which class brokers report, and what it does."""

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from app.documents.faults import UnreadableDocumentError
from app.documents.nodes import parse
from app.domain.callbacks.callback import CallbackModel, ConfiguredCallback, QuotaType
from app.domain.callbacks.foreign import make_foreign
from app.domain.callbacks.groups import Groups
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.callbacks.partition_share import PartitionShare
from app.domain.callbacks.strimzi_static import StrimziStatic

_CLASS: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MAX_BYTES: Final = 16 * 1024 * 1024

Options = Mapping[str, Any]


class CallbackFileError(ValueError):
    """The file cannot be used; the text is a sentence."""


def read_callback(path: Path) -> ConfiguredCallback:
    """Read the file, and those that it names, relative to its own folder.

    Raises:
        CallbackFileError: Something of it cannot be used.
    """
    try:
        document = _mapping(_content(path), "the file")
        _only(document, ("class", "model", "options"), "the file")
        class_name, name = (_text(document.get(member), member) for member in ("class", "model"))
        options = _mapping(document.get("options", {}), "options")
        return ConfiguredCallback(class_name, _model(name, options, path.parent))
    except ValueError as error:
        message = f"{path}: {str(error).rstrip('.')}."
        raise CallbackFileError(message) from error


def _model(name: str, options: Options, folder: Path) -> CallbackModel:
    if make := _MODELS.get(name):
        return make(options, folder)
    if not _CLASS.fullmatch(name):
        raise ValueError(f"{name!r} is no model; there are {', '.join(_MODELS)}, or module:Class")
    module, _, member = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), member)
    except Exception as error:  # whatever it is: the code is not ours
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    return make_foreign(name, found, options)


def _kafka(options: Options, _folder: Path) -> CallbackModel:
    _only(options, (), "options of kafka")
    return KAFKA_RULES


_STATIC_LIMITS: Final = {
    "produce": QuotaType.PRODUCE,
    "fetch": QuotaType.FETCH,
    "request": QuotaType.REQUEST,
}
_EXCLUDED: Final = "excluded_principals"
_USER_PREFIX: Final = "User:"


def _strimzi_static(options: Options, _folder: Path) -> CallbackModel:
    _only(options, (*_STATIC_LIMITS, _EXCLUDED), "options of strimzi-static")
    limits = {
        quota_type: _number(options[name], name)
        for name, quota_type in _STATIC_LIMITS.items()
        if name in options
    }
    principals = _texts(options.get(_EXCLUDED, []), _EXCLUDED)
    if wrong := [each for each in principals if not each.startswith(_USER_PREFIX)]:
        raise ValueError(f"{_EXCLUDED}: {wrong[0]!r} is no principal such as User:boss")
    return StrimziStatic(limits, frozenset(each.removeprefix(_USER_PREFIX) for each in principals))


_USERS, _CLIENT_IDS = "users", "client-ids"


def _groups(options: Options, folder: Path) -> CallbackModel:
    name = "groups_file"
    _only(options, (name,), "options of groups")
    groups = _mapping(_content(folder / _text(options.get(name), name)), name)
    members: dict[str, dict[str, str]] = {_USERS: {}, _CLIENT_IDS: {}}
    for group, lists in groups.items():
        _only(_mapping(lists, f"group {group!r}"), members, f"group {group!r}")
        for kind, names in lists.items():
            for each in _texts(names, f"{kind} of group {group!r}"):
                other = members[kind].setdefault(each, group)
                if other != group:
                    raise ValueError(f"{each!r} of {kind} is in two groups: {other!r}, {group!r}")
    return Groups(members[_USERS], members[_CLIENT_IDS])


def _partition_share(options: Options, folder: Path) -> CallbackModel:
    name = "topics_file"
    _only(options, (name,), "options of partition-share")
    clients = _mapping(_content(folder / _text(options.get(name), name)), name)
    _only(clients, (_USERS, _CLIENT_IDS), name)
    topics = {
        kind: {
            client: frozenset(_texts(listed, f"topics of {client!r}"))
            for client, listed in _mapping(clients.get(kind, {}), kind).items()
        }
        for kind in (_USERS, _CLIENT_IDS)
    }
    return PartitionShare(topics[_USERS], topics[_CLIENT_IDS])


_MODELS: Final[Mapping[str, Callable[[Options, Path], CallbackModel]]] = {
    "kafka": _kafka,
    "strimzi-static": _strimzi_static,
    "groups": _groups,
    "partition-share": _partition_share,
}


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which only the last would count."""

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - PyYAML's
    ) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            message = f"{twice[0]!r} is there twice"
            raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _content(path: Path) -> object:
    try:
        content = path.read_bytes()
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{path.name} has over {_MAX_BYTES} bytes")
        text = content.decode()
        nodes = parse(text)
        return yaml.load(text, _Loader) if len(nodes) == 1 else None  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, UnreadableDocumentError) as error:
        raise ValueError(f"{path.name} is not YAML: {' '.join(str(error).split())}") from None


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return value
    raise ValueError(f"{what} is to be one mapping by texts")


def _only(value: Mapping[str, Any], members: Any, what: str) -> None:
    if unknown := [name for name in value if name not in members]:
        takes = ", ".join(members) or "nothing"
        raise ValueError(f"{unknown[0]!r} is unknown in {what}, which takes {takes}")


def _text(value: object, what: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{what} is to be a text that is not empty")


def _texts(value: object, what: str) -> list[str]:
    if isinstance(value, list) and all(isinstance(each, str) and each for each in value):
        return value
    raise ValueError(f"{what} is to be a list of texts")


def _number(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise ValueError(f"{what} is to be a number over 0")
