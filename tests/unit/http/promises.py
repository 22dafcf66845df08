"""What an OpenAPI document promises, as sorted lines that do not depend on its form.

``openapi_promises.txt`` holds those that callers rely on; ``python -m tests.unit.http.promises``
writes those of the present document.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

PROMISES = Path(__file__).parent / "openapi_promises.txt"

_PROBLEM = "application/problem+json"
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "format")


class Promises:
    """Reads one document.

    Args:
        document: As it is published.
        names: Of the objects that callers know by name; others are read where they are used.
    """

    def __init__(self, document: Mapping[str, Any], names: Collection[str]) -> None:
        self.document = document
        self._names = names
        self._objects = {"Problem"}

    def lines(self) -> list[str]:
        """Return the promises; the members of a named object stand under its name, once."""
        lines = set(self._operations())
        done: set[str] = set()
        while self._objects - done:
            name = min(self._objects - done)
            done.add(name)
            schema = self.document["components"]["schemas"][name]
            lines.update(f"{name}: {line}" for line in self._members(schema, ""))
        return sorted(lines)

    def _operations(self) -> Iterator[str]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                for promise in self._operation(operation):
                    yield f"{method.upper()} {path}: {promise}"

    def _operation(self, operation: Mapping[str, Any]) -> Iterator[str]:
        who = "any caller" if operation["security"] else "everybody"
        yield f"operation {operation['operationId']} for {who}"
        for parameter in map(self._resolved, operation["parameters"]):
            needed = "required" if parameter["required"] else "optional"
            name = f"{parameter['in']} {parameter['name']} {needed}"
            yield from (f"{name}{line}" for line in self._members(parameter["schema"], ""))
        body = self._resolved(operation.get("requestBody", {"content": {}}))
        yield from self._content("body", body["content"])
        for status, response in operation["responses"].items():
            yield from self._response(status, self._resolved(response))

    def _response(self, status: str, response: Mapping[str, Any]) -> Iterator[str]:
        headers = {
            f"{name}{'' if self._resolved(header)['required'] else '?'}"
            for name, header in response["headers"].items()
        }
        yield f"{status} headers {' '.join(sorted(headers))}"
        content = response.get("content", {})
        for code in codes_of(response):
            yield f"{status} code {code}"
        yield from self._content(status, content)

    def _content(self, name: str, content: Mapping[str, Any]) -> Iterator[str]:
        for media_type, body in content.items():
            if media_type != _PROBLEM:
                lines = self._members(body["schema"], "")
                yield from (f"{name} {media_type}{line}" for line in lines)

    def _resolved(self, node: Any) -> Any:
        while "$ref" in node:
            target: Any = self.document
            for name in node["$ref"].removeprefix("#/").split("/"):
                target = target[name]
            node = target
        return node

    def _members(self, schema: Any, path: str, needed: str = "") -> Iterator[str]:
        rules, members = self._judged(schema)
        yield f"{path}{needed} {' '.join(rules)}"
        for name, member, mark in members:
            yield from self._members(member, f"{path}/{name}", mark)

    def _judged(self, schema: Any) -> tuple[list[str], list[tuple[str, Any, str]]]:
        """Return the rules of one member, and what is below it."""
        rules, below = [], []
        for branch in self._branches(schema):
            if isinstance(branch, str):
                rules.append(f"is {branch}")
                continue
            rules.extend(_rules(branch))
            required = branch.get("required", ())
            for name, member in branch.get("properties", {}).items():
                below.append((name, member, "" if name in required else "?"))
            if isinstance(branch.get("additionalProperties"), dict):
                below.append(("{}", branch["additionalProperties"], ""))
            if "items" in branch:
                below.append(("[]", branch["items"], ""))
        return sorted(set(rules)), below

    def _branches(self, schema: Any) -> Iterator[Any]:
        """Yield the alternatives: schemas, and the names of objects with members."""
        if "$ref" in schema:
            name, schema = schema["$ref"].rpartition("/")[2], self._resolved(schema)
            if name in self._names:
                self._objects.add(name)
                yield name
                return
        yield schema
        for keyword in ("anyOf", "oneOf", "allOf"):
            for branch in schema.get(keyword, ()):
                yield from self._branches(branch)


def codes_of(response: Mapping[str, Any]) -> list[str]:
    """Return the codes of problems that the description of an answer names."""
    return re.findall(r"\(`([a-z-]+)`\)", response["description"])


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    if not schema.keys() & {"enum", "const"}:
        types = schema.get("type", [])
        yield from [types] if isinstance(types, str) else types
    if "pattern" in schema:
        yield f"pattern-{hashlib.sha256(schema['pattern'].encode()).hexdigest()[:12]}"
    for name in _BOUNDS:
        if name in schema:
            bound = schema[name]
            yield f"{name}={int(bound) if isinstance(bound, float) and bound % 1 == 0 else bound}"
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    yield from (json.dumps(value) for value in values)
    if schema.get("default") is not None and schema["default"] != []:
        yield f"default={json.dumps(schema['default'])}"
    if schema.get("additionalProperties") is False:
        yield "closed"


def relied_on() -> list[str]:
    """Return the promises that callers rely on."""
    return PROMISES.read_text(encoding="utf-8").splitlines()


def promised(document: Mapping[str, Any]) -> list[str]:
    """Return the promises of a document, under the names that callers know."""
    titles = {line.partition(":")[0] for line in relied_on()}
    return Promises(document, {title for title in titles if " " not in title}).lines()


def main() -> None:
    """Write the promises of the present document."""
    from tests.unit.http.test_openapi import DOCUMENT  # noqa: PLC0415

    PROMISES.write_text("\n".join(promised(DOCUMENT)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
