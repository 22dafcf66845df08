"""What the OpenAPI document promises: its operations and objects, each with its members.

``openapi_promises.txt`` holds what callers rely on: a paragraph for each operation and each object,
a word for each parameter, status and member, and after ``=`` its types, its words, or the codes of
its problems. ``python -m tests.unit.http.promises`` writes what is promised at present.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.unit.http.fake_service import document, resolved

PROMISES = Path(__file__).parent / "openapi_promises.txt"

Promise = tuple[str, str, str]
"""An operation or an object, a member of it, and what the member may be."""


def promised() -> set[Promise]:
    """Return the promises of every operation of the document and of every object with a name."""
    schemas = document()["components"]["schemas"]
    promises = {each for name, schema in schemas.items() for each in _object(name, schema)}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path} {operation['operationId']}"
            promises.update((where, *each) for each in _operation(operation))
    return promises


def _operation(operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for parameter in map(resolved, operation["parameters"]):
        name = f"{parameter['in']}.{parameter['name']}{'' if parameter['required'] else '?'}"
        yield from ((name, kind) for kind in _kinds(parameter["schema"]))
    yield from _content("body", resolved(operation.get("requestBody", {})))
    for status, response in operation["responses"].items():
        answer = resolved(response)
        if codes := codes_of(answer):
            yield from ((status, code) for code in codes)
            continue
        yield from ((f"{status}.headers", name) for name in answer["headers"])
        yield from _content(status, answer)


def _content(name: str, described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for media_type, content in described.get("content", {}).items():
        yield from ((f"{name}.{media_type}", kind) for kind in _kinds(content["schema"]))


def _object(where: str, schema: Any) -> Iterator[Promise]:
    """Yield the members of an object, and those of objects without a name inside it."""
    for branch in _branches(schema):
        required = branch.get("required", ())
        for name, member in branch.get("properties", {}).items():
            mark = "" if name in required else "?"
            yield from ((where, f"{name}{mark}", kind) for kind in _kinds(member))
            yield from _object(f"{where}.{name}", member)
        for inner in (branch.get("items"), branch.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from _object(where, inner)


def _kinds(schema: Any) -> Iterator[str]:
    """Yield the types of a value, or its words; the type of an object is its name."""
    for branch in _branches(schema):
        if "properties" in branch:
            yield branch.get("title", "object")
        elif {"enum", "const"} & branch.keys():
            yield from map(json.dumps, branch.get("enum") or [branch["const"]])
        elif "items" in branch:
            yield from (f"{kind}[]" for kind in _kinds(branch["items"]))
        elif isinstance(branch.get("additionalProperties"), dict):
            yield from (f"{kind}{{}}" for kind in _kinds(branch["additionalProperties"]))
        elif types := branch.get("type"):
            yield from [types] if isinstance(types, str) else types


def _branches(schema: Any) -> Iterator[Any]:
    """Yield the alternatives; an object that has a name is its name alone."""
    target = resolved(schema)
    if "$ref" in schema and "properties" in target:
        target = {"properties": {}, "title": schema["$ref"].rpartition("/")[2]}
    yield target
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in target.get(keyword, ()):
            yield from _branches(branch)


def codes_of(response: Mapping[str, Any]) -> list[str]:
    """Return the codes of problems that the description of an answer names."""
    return re.findall(r"\(`([a-z-]+)`\)", response["description"])


def relied_on() -> set[Promise]:
    """Return the promises that callers rely on."""
    paragraphs = re.sub(r"\n +", " ", PROMISES.read_text(encoding="utf-8")).splitlines()
    return {
        (where, name, kind)
        for where, words in (paragraph.split(": ") for paragraph in paragraphs)
        for name, kinds in (word.split("=") for word in words.split())
        for kind in kinds.split("|")
    }


def written(promises: set[Promise]) -> str:
    """Return a paragraph for each operation and each object."""
    paragraphs = []
    for where, members in groupby(sorted(promises), itemgetter(0)):
        words = (
            f"{name}={'|'.join(kind for *_, kind in kinds)}"
            for name, kinds in groupby(members, itemgetter(1))
        )
        paragraphs.append(f"{where}: {' '.join(words)}")
    wrap = textwrap.TextWrapper(
        100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"{wrap.fill(paragraph)}\n" for paragraph in paragraphs)


if __name__ == "__main__":
    PROMISES.write_text(written(promised()), encoding="utf-8")
