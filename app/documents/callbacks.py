"""The file of a quota callback: which class brokers report, and what it does."""

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from app.documents.yaml_files import mapping_of, read_yaml, refuse_others, text_of, texts_of
from app.domain.callbacks.callback import CallbackModel, ConfiguredCallback, QuotaType
from app.domain.callbacks.foreign import make_foreign
from app.domain.callbacks.groups import Groups
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.callbacks.partition_share import PartitionShare
from app.domain.callbacks.strimzi_static import StrimziStatic

_CLASS: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
Options = Mapping[str, Any]


class CallbackFileError(ValueError):
    """The file cannot be used; the text is a sentence."""


def read_callback(path: Path) -> ConfiguredCallback:
    """Read the file, and those that it names, relative to its own folder.

    Raises:
        CallbackFileError: Something of it cannot be used.
    """
    try:
        return make_callback(read_yaml(path), path.parent)
    except ValueError as error:
        message = f"{path}: {str(error).rstrip('.')}."
        raise CallbackFileError(message) from error


def make_callback(document: object, folder: Path) -> ConfiguredCallback:
    """Return what a document says of a callback; it names files relative to a folder.

    Raises:
        ValueError: Something of it cannot be used.
    """
    members = mapping_of(document, "the file")
    refuse_others(members, ("class", "model", "options"), "the file")
    class_name, name = (text_of(members.get(member), member) for member in ("class", "model"))
    options = mapping_of(members.get("options", {}), "options")
    return ConfiguredCallback(class_name, _model(name, options, folder))


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
    refuse_others(options, (), "options of kafka")
    return KAFKA_RULES


_STATIC_LIMITS: Final = {
    "produce": QuotaType.PRODUCE,
    "fetch": QuotaType.FETCH,
    "request": QuotaType.REQUEST,
}
_EXCLUDED: Final = "excluded_principals"
_USER_PREFIX: Final = "User:"


def _strimzi_static(options: Options, _folder: Path) -> CallbackModel:
    refuse_others(options, (*_STATIC_LIMITS, _EXCLUDED), "options of strimzi-static")
    limits = {
        quota_type: _number(options[name], name)
        for name, quota_type in _STATIC_LIMITS.items()
        if name in options
    }
    principals = texts_of(options.get(_EXCLUDED, []), _EXCLUDED)
    if wrong := [each for each in principals if not each.startswith(_USER_PREFIX)]:
        raise ValueError(f"{_EXCLUDED}: {wrong[0]!r} is no principal such as User:boss")
    return StrimziStatic(limits, frozenset(each.removeprefix(_USER_PREFIX) for each in principals))


_USERS, _CLIENT_IDS = "users", "client-ids"


def _groups(options: Options, folder: Path) -> CallbackModel:
    name = "groups_file"
    refuse_others(options, (name,), "options of groups")
    groups = mapping_of(read_yaml(folder / text_of(options.get(name), name)), name)
    members: dict[str, dict[str, str]] = {_USERS: {}, _CLIENT_IDS: {}}
    for group, lists in groups.items():
        refuse_others(mapping_of(lists, f"group {group!r}"), members, f"group {group!r}")
        for kind, names in lists.items():
            for each in texts_of(names, f"{kind} of group {group!r}"):
                other = members[kind].setdefault(each, group)
                if other != group:
                    raise ValueError(f"{each!r} of {kind} is in two groups: {other!r}, {group!r}")
    return Groups(members[_USERS], members[_CLIENT_IDS])


def _partition_share(options: Options, folder: Path) -> CallbackModel:
    name = "topics_file"
    refuse_others(options, (name,), "options of partition-share")
    clients = mapping_of(read_yaml(folder / text_of(options.get(name), name)), name)
    refuse_others(clients, (_USERS, _CLIENT_IDS), name)
    topics = {
        kind: {
            client: frozenset(texts_of(listed, f"topics of {client!r}"))
            for client, listed in mapping_of(clients.get(kind, {}), kind).items()
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


def _number(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise ValueError(f"{what} is to be a number over 0")
