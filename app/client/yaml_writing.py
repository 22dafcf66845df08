"""JSON values as YAML, in ASCII, that readers of YAML 1.1 and 1.2 see alike."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Plain words that YAML 1.1 reads as null or boolean, in any case."""

API_VERSION: Final = "quotas/v1"


def yaml_lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield a mapping in block style; what is in lists stands in one line each."""
    for key, member in value.items():
        if isinstance(member, Mapping) and member and any(map(_is_large, member.values())):
            yield f"{indent}{_text(key)}:"
            yield from yaml_lines(member, f"{indent}  ")
        elif isinstance(member, list) and member:
            yield f"{indent}{_text(key)}:"
            yield from (f"{indent}  - {flow(item)}" for item in member)
        else:
            yield f"{indent}{_text(key)}: {flow(member)}"


def _is_large(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def flow(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {flow(member)}' for key, member in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str):
        return _text(value)
    return _number(value) if isinstance(value, float) else json.dumps(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _number(value: float) -> str:
    """Write a float with a point, as YAML 1.1 wants it."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{mark}{exponent}"


def document_lines(quotas: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a document of quotas, entity by entity."""
    yield f"apiVersion: {API_VERSION}"
    yield "quotas:" if quotas else "quotas: []"
    for quota in quotas:
        yield f"  - entity: {flow(quota['entity'])}"
        yield f"    values: {flow(quota['values'])}"
