"""Files of YAML as plain values, read strictly; what is wrong is a ``ValueError`` of one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from app.documents.faults import UnreadableDocumentError
from app.documents.nodes import parse

_MAX_BYTES: Final = 16 * 1024 * 1024


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


def read_yaml(path: Path) -> object:
    """Return the one document of a file; null where there is none, or several.

    Raises:
        ValueError: It cannot be read, or is not YAML; aliases and repeated keys are refused.
    """
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


def mapping_of(value: object, what: str) -> Mapping[str, Any]:
    """Return a mapping by texts, or refuse what is none."""
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return value
    raise ValueError(f"{what} is to be one mapping by texts")


def refuse_others(value: Mapping[str, Any], members: Any, what: str) -> None:
    """Refuse members that are not among these."""
    if unknown := [name for name in value if name not in members]:
        takes = ", ".join(members) or "nothing"
        raise ValueError(f"{unknown[0]!r} is unknown in {what}, which takes {takes}")


def text_of(value: object, what: str) -> str:
    """Return a text that is not empty, or refuse what is none."""
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"{what} is to be a text that is not empty")


def texts_of(value: object, what: str) -> list[str]:
    """Return a list of such texts, or refuse what is none."""
    if isinstance(value, list) and all(isinstance(each, str) and each for each in value):
        return value
    raise ValueError(f"{what} is to be a list of texts")
